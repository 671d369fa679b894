// Calibration of whole layers of the small models: experts, the MLP beside them, latent attention.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engine/base/check.h"
#include "engine/calibrate/layer_quantiser.h"
#include "engine/calibrate/layer_scales.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/spec/tensor_list.h"
#include "tests/engine/decoder/golden.h"

namespace pinion {
namespace {

using kernels::Dtype;
using Windows = std::vector<std::vector<int32_t>>;

constexpr size_t kWindow = 96;
constexpr int kOutliers[] = {3, 17};  // channels that stand out of what norms give
constexpr float kOutlier = 64;

// A source of which some tensors are others, in float32.
class ChangedSource : public TensorSource {
 public:
  explicit ChangedSource(const TensorSource& source) : source_(source) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    auto info = source_.Find(name);
    if (info && changed.contains(name)) info->dtype = Dtype::kF32;
    return info;
  }
  std::vector<std::string> Names() const override { return source_.Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const auto found = changed.find(info.name);
    if (found == changed.end()) return source_.Rows(info, row, count, scratch);
    return reinterpret_cast<const std::byte*>(found->second.data() + row * RowElements(info.shape));
  }
  void Release(const TensorInfo&, size_t, size_t) const override {}

  void Set(const std::vector<std::string>& modules, const Stack& stack) {
    const float* next = stack.weights.data();
    for (const std::string& module : modules) {
      const TensorInfo info = MustFind(source_, module + ".weight");
      const size_t size = ElementCount(info.shape);
      changed[info.name].assign(next, next + size);
      next += size;
    }
  }

  std::map<std::string, std::vector<float>> changed;

 private:
  const TensorSource& source_;
};

std::shared_ptr<const TensorSource> Open(const ModelFiles& files) {
  auto weights = OpenWeights(files);
  CHECK(weights) << weights.error().message;
  return *std::move(weights);
}

// In float32.
StartedModel Load(const ModelFiles& files, std::shared_ptr<const TensorSource> source,
                  int threads) {
  StartedModel model;
  model.files = files;
  model.isa = kernels::UsableIsas().back();
  Plan plan;
  plan.ranks.push_back({0, {}, {}, threads});
  DecoderOptions options;
  options.isa = model.isa;
  options.formats = Dtype::kF32;
  options.max_rows = kWindow;
  auto teams = CpuExecutor::Load({files.spec, std::move(source), plan, options, {1}}).value();
  model.teams = teams.get();
  model.executor = std::move(teams);
  model.info.blocks = kWindow / options.block_tokens + 1;
  CHECK(model.executor->AllocateKv({model.info.blocks, kWindow, 1}));
  return model;
}

struct Fixture {
  explicit Fixture(const std::string& name, int threads = 2)
      : files(FindModel(testing::ModelFolder(name)).value()),
        source(Open(files)),
        model(Load(files, source, threads)) {}

  Windows RandomText(size_t tokens, uint32_t seed) const {
    std::mt19937 rng(seed);
    std::uniform_int_distribution<int32_t> any(3, files.spec.vocabulary - 1);
    Windows windows;
    for (; tokens > 0; tokens -= windows.back().size()) {
      windows.emplace_back(std::min(tokens, kWindow));
      for (int32_t& id : windows.back()) id = any(rng);
    }
    return windows;
  }
  LayerStatistics Statistics(const Windows& text, int layer, bool wants_gram) {
    return Calibration(model, text, wants_gram).Take(layer);
  }
  // The last layer has experts in all of them.
  int layer() const { return files.spec.layers - 1; }

  ModelFiles files;
  std::shared_ptr<const TensorSource> source;
  StartedModel model;
};

QuantScheme Scheme(const char* name) {
  QuantScheme scheme = *MadeUpScheme(name);
  if (scheme.bits == 4) scheme.group = 16;
  return scheme;
}

std::vector<float> Logits(StartedModel& model, const std::vector<int32_t>& ids) {
  const auto vocabulary = static_cast<size_t>(model.files.spec.vocabulary);
  std::vector<float> all(ids.size() * vocabulary);
  std::vector<int32_t> blocks(model.info.blocks);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  StepBatch batch;
  batch.tokens = ids;
  batch.slices = {{0, ids.size(), 0, SameBlocks(KvTables(model.files.spec), blocks.data())}};
  for (size_t i = 0; i < ids.size(); ++i) batch.logit_rows.push_back(static_cast<int32_t>(i));
  model.teams->decoder().Forward(
      batch, [&](const Worker& worker, size_t first, size_t count, float* logits, size_t stride) {
        for (size_t i = 0; worker.thread == 0 && i < count; ++i)
          std::copy_n(logits + i * stride, vocabulary, all.data() + (first + i) * vocabulary);
      });
  return all;
}

// Outliers behind every norm that somebody reads, whose columns make up for them.
std::shared_ptr<ChangedSource> WithOutliers(const Fixture& fixture) {
  auto outliers = std::make_shared<ChangedSource>(*fixture.source);
  const DecoderSpec& spec = fixture.files.spec;
  const auto scale = [&](const std::vector<std::string>& modules, float factor) {
    Stack stack = ReadStack(*fixture.source, modules);
    for (size_t row = 0; row < stack.rows; ++row)
      for (const int channel : kOutliers) stack.row(row)[channel] *= factor;
    outliers->Set(modules, stack);
  };
  const auto scale_norm = [&](const std::string& module, float offset) {
    const TensorInfo info = MustFind(*fixture.source, module + ".weight");
    std::vector<float>& values = outliers->changed[info.name];
    values.resize(ElementCount(info.shape));
    ReadTensor(*fixture.source, info, values.data());
    for (const int channel : kOutliers) {
      float& value = values[static_cast<size_t>(channel)];
      value = (value + offset) * kOutlier - offset;
    }
  };
  for (int layer = 0; layer < spec.layers; ++layer) {
    for (const LayerMatrix& matrix : CalibratedMatrices(spec, layer))
      if (matrix.role != MatrixRole::kO && matrix.role != MatrixRole::kDown &&
          matrix.role != MatrixRole::kExpertDown)
        scale(ModulesOf(spec, layer, matrix), 1 / kOutlier);
    if (spec.layer_specs[static_cast<size_t>(layer)].mlp == MlpKind::kExperts)
      scale({LayerTensor(spec.names.router, layer)}, 1 / kOutlier);
    const TensorNames& names = spec.names;
    for (const std::string& norm : {names.attention_norm, names.mlp_norm})
      if (!norm.empty()) scale_norm(LayerTensor(norm, layer), spec.norm_offset);
    for (const std::string& norm : {names.q_a_norm, names.kv_a_norm})
      if (!norm.empty()) scale_norm(LayerTensor(norm, layer), 0);
  }
  return outliers;
}

bool AllOne(const std::vector<float>& factors) {
  return std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1; });
}

class ScalesOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, ScalesOf,
                         ::testing::Values("llama", "gemma2", "gemma3", "cohere2", "qwen3moe",
                                           "mixtral", "deepseekv2", "deepseekv3", "gemma3n"));

TEST_P(ScalesOf, KeepTheModelsResults) {
  Fixture fixture(GetParam());
  const DecoderSpec& spec = fixture.files.spec;
  const auto plain = WithOutliers(fixture);
  fixture.model = Load(fixture.files, plain, 2);
  const Windows text = fixture.RandomText(600, 1);
  const auto scaled = std::make_shared<ChangedSource>(*plain);
  std::map<MatrixRole, size_t> moved;
  for (int layer = 0; layer < spec.layers; ++layer) {
    const LayerScales scales = FindScales(fixture.model, *plain, Scheme("w8a8"), layer,
                                          fixture.Statistics(text, layer, false));
    for (const auto& [matrix, factors] : scales.columns) moved[matrix.role] += !AllOne(factors);
    for (const LayerMatrix& matrix : CalibratedMatrices(spec, layer)) {
      Stack stack = ReadStack(*plain, ModulesOf(spec, layer, matrix));
      scales.Apply(matrix, stack);
      scaled->Set(ModulesOf(spec, layer, matrix), stack);
    }
    for (const auto& [name, bytes] : scales.changed) {
      std::vector<float>& values = scaled->changed[name];
      const Dtype dtype = MustFind(*plain, name).dtype;
      values.resize(bytes.size() / kernels::SizeOf(dtype));
      kernels::Convert(reinterpret_cast<std::byte*>(values.data()), Dtype::kF32, bytes.data(),
                       dtype, values.size());
    }
  }
  // LAuReL adds what the norm before attention gives, which therefore keeps its weights.
  EXPECT_EQ(moved[MatrixRole::kQkv] > 0, spec.laurel_rank == 0);
  EXPECT_GT(moved[MatrixRole::kMlpIn] + moved[MatrixRole::kExpertIn], 0u);
  const std::vector<float> before = Logits(fixture.model, text[0]);
  StartedModel after = Load(fixture.files, scaled, 2);
  const std::vector<float> logits = Logits(after, text[0]);
  double worst = 0, squares = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    worst = std::max(worst, std::abs(double{before[i]} - logits[i]));
    squares += double{before[i]} * before[i];
  }
  EXPECT_LT(worst / std::sqrt(squares / static_cast<double>(before.size())), 1e-4);
}

// ---- Rounding experts.

// Squares of what rounding changes in the products of all experts of a layer with a text, by role.
std::map<MatrixRole, double> Errors(Fixture& fixture, const LayerStatistics& text,
                                    const QuantisedLayer& layer) {
  std::map<MatrixRole, double> errors;
  for (const auto& [matrix, rounded] : layer.matrices) {
    if (!matrix.of_expert()) continue;
    const Stack stack =
        ReadStack(*fixture.source, ModulesOf(fixture.files.spec, fixture.layer(), matrix));
    const InputRows rows = text.experts.Of(matrix.role, static_cast<size_t>(matrix.expert));
    const size_t k = stack.k, group = (k + rounded.groups - 1) / rounded.groups;
    for (size_t row = 0; row < rows.rows; ++row) {
      const auto* x = reinterpret_cast<const float*>(rows.at(row).first);
      for (size_t n = 0; n < stack.rows; ++n) {
        double difference = 0;
        for (size_t i = 0; i < k; ++i) {
          const size_t at = n * rounded.groups + i / group;
          const float value = rounded.scales[at] * rounded.codes[n * k + i] + rounded.offsets[at];
          difference += double{x[i]} * (value - stack.weights.data()[n * k + i]);
        }
        errors[matrix.role] += difference * difference;
      }
    }
  }
  return errors;
}

QuantisedLayer ByGptq(Fixture& fixture, const Windows& text) {
  return QuantiseLayer(fixture.model, *fixture.source, Scheme("gptq"), fixture.layer(),
                       fixture.Statistics(text, fixture.layer(), true));
}

// GPTQ that knows nothing.
QuantisedLayer ToNearest(Fixture& fixture) {
  LayerStatistics nothing = fixture.Statistics(fixture.RandomText(8, 1), fixture.layer(), true);
  nothing.experts = {};
  for (auto& [role, inputs] : nothing.inputs)
    std::fill_n(inputs.gram.data(), inputs.k * inputs.k, 0.0f);
  return QuantiseLayer(fixture.model, *fixture.source, Scheme("gptq"), fixture.layer(),
                       std::move(nothing));
}

class Experts : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Experts,
                         ::testing::Values("qwen3moe", "mixtral", "deepseekv2", "deepseekv3"));

TEST_P(Experts, ErrLessByGptqOnTextThatItHasNotSeen) {
  Fixture fixture(GetParam());
  const auto heldout = fixture.Statistics(fixture.RandomText(400, 2), fixture.layer(), false);
  auto nearest = Errors(fixture, heldout, ToNearest(fixture));
  auto gptq = Errors(fixture, heldout, ByGptq(fixture, fixture.RandomText(2000, 1)));
  EXPECT_LT(gptq[MatrixRole::kExpertIn], nearest[MatrixRole::kExpertIn]);
  EXPECT_LT(gptq[MatrixRole::kExpertDown], nearest[MatrixRole::kExpertDown]);
}

// Below 32 tokens no dependence can be told from chance: nothing makes up for anything.
TEST_P(Experts, SeenSeldomAreRoundedToTheNearest) {
  Fixture fixture(GetParam());
  const QuantisedLayer nearest = ToNearest(fixture);
  for (const size_t tokens : {3, 12, 31}) {
    const QuantisedLayer layer = ByGptq(fixture, fixture.RandomText(tokens, 1));
    for (const auto& [matrix, rounded] : layer.matrices)
      EXPECT_TRUE(rounded.codes == nearest.matrices.at(matrix).codes) << tokens << " tokens";
  }
  const QuantisedLayer layer = ByGptq(fixture, fixture.RandomText(96, 1));
  for (const auto& [matrix, rounded] : layer.matrices) {
    if (matrix.role != MatrixRole::kExpertIn) continue;
    EXPECT_FALSE(rounded.codes == nearest.matrices.at(matrix).codes);
  }
}

TEST(SeldomExperts, UseOthersInputsOrElseRoundToNearest) {
  Fixture fixture("qwen3moe");
  const Windows one_token{std::vector<int32_t>(64, 7)};  // some experts see all of it
  const LayerStatistics seen = fixture.Statistics(one_token, fixture.layer(), true);
  const QuantisedLayer layer = ByGptq(fixture, one_token), nearest = ToNearest(fixture);
  size_t unseen = 0;
  for (int expert = 0; expert < fixture.files.spec.moe.router.experts; ++expert) {
    if (seen.experts.tokens(static_cast<size_t>(expert)) > 0) continue;
    ++unseen;
    const LayerMatrix in{MatrixRole::kExpertIn, expert}, down{MatrixRole::kExpertDown, expert};
    EXPECT_TRUE(layer.matrices.at(down).codes == nearest.matrices.at(down).codes);
    EXPECT_FALSE(layer.matrices.at(in).codes ==
                 nearest.matrices.at(in).codes);  // by those of others
  }
  EXPECT_GT(unseen, 0u);
}

TEST(CalibratedLayer, DoesNotDependOnTheNumberOfThreads) {
  for (const char* scheme : {"w8a8", "awq", "gptq"}) {
    std::vector<QuantisedLayer> layers;
    for (const int threads : {1, 3}) {
      Fixture fixture("deepseekv3", threads);
      const auto text = fixture.RandomText(500, 1);
      layers.push_back(
          QuantiseLayer(fixture.model, *fixture.source, Scheme(scheme), fixture.layer(),
                        fixture.Statistics(text, fixture.layer(), scheme == std::string("gptq"))));
    }
    EXPECT_EQ(layers[0].changed, layers[1].changed);
    ASSERT_EQ(layers[0].matrices.size(), layers[1].matrices.size());
    for (const auto& [matrix, rounded] : layers[0].matrices)
      EXPECT_EQ(rounded.codes, layers[1].matrices.at(matrix).codes) << scheme;
  }
}

TEST(CalibratedMatrices, AreAllThatIsQuantised) {
  for (const char* name :
       {"llama", "phi3", "opt", "qwen3moe", "mixtral", "deepseekv2", "deepseekv3"}) {
    const DecoderSpec spec = FindModel(testing::ModelFolder(name)).value().spec;
    std::vector<std::string> names, wanted = RoundedLinears(spec);
    for (int layer = 0; layer < spec.layers; ++layer)
      for (const LayerMatrix& matrix : CalibratedMatrices(spec, layer))
        for (const std::string& module : ModulesOf(spec, layer, matrix))
          names.push_back(module + ".weight");
    std::sort(names.begin(), names.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(names, wanted) << name;
  }
}

}  // namespace
}  // namespace pinion
