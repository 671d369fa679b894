// Encoders against the reference's embeddings and scores: hidden states come from the decoder,
// pooled here by hand.

#include <gtest/gtest.h>

#include <numeric>

#include "engine/decoder/classifier.h"
#include "tests/engine/decoder/loaded.h"

namespace pinion {
namespace {

using testing::Float32;
using testing::Ids;
using testing::Loaded;
using testing::Unpinned;

constexpr size_t kLongest = 1024;  // tokens of a step
constexpr double kBound = 3e-4;    // of the reference's RMS (the fixtures' README)

using Vector = std::vector<float>;

std::string EncoderFolder(const std::string& name) {
  return tests::TestData() + "/embedders/" + name;
}

Vector ReadTensor(const std::string& file, const std::string& name) {
  const auto source = OpenSafetensorsFile(file).value();
  const TensorInfo info = source->Find(name).value();
  std::vector<std::byte> scratch;
  const auto rows = static_cast<size_t>(info.shape[0]);
  Vector values(rows * RowElements(info.shape));
  kernels::Convert(reinterpret_cast<std::byte*>(values.data()), kernels::Dtype::kF32,
                   source->Rows(info, 0, rows, scratch), info.dtype, values.size());
  return values;
}

struct Text {
  std::vector<int32_t> ids, types;
};

std::vector<Text> Texts(const Json& golden) {
  std::vector<Text> texts;
  for (const Json& prompt : golden.Find("prompts")->array()) {
    const Json* types = prompt.Find("token_type_ids");
    texts.push_back({Ids(*prompt.Find("input_ids")), types ? Ids(*types) : std::vector<int32_t>()});
    texts.back().types.resize(texts.back().ids.size());
  }
  return texts;
}

// A model of which every text is a sequence, and all of them one step.
struct Encoder {
  ModelFiles files;
  std::unique_ptr<TensorSource> source;  // a second one, for what is not the decoder's
  Loaded loaded;

  Encoder(const std::string& name, const std::vector<int>& threads, kernels::Isa isa,
          kernels::Dtype dtype)
      : files(FindModel(EncoderFolder(name)).value()),
        source(OpenWeights(files).value()),
        loaded(files, OpenWeights(files).value(), *Ranks::Start(Unpinned(threads)),
               Options(isa, dtype), kLongest) {}

  static DecoderOptions Options(kernels::Isa isa, kernels::Dtype dtype) {
    DecoderOptions options = Float32();
    options.isa = isa;
    options.formats = dtype;
    options.max_rows = kLongest;
    return options;
  }

  // The last hidden states of each text, [tokens][hidden].
  std::vector<Vector> Hidden(const std::vector<Text>& texts) {
    std::vector<int32_t> blocks;  // not in order
    for (int32_t i = 0; i < 64; ++i) blocks.push_back(i * 37 % 64);
    StepBatch batch;
    size_t block = 0;
    for (const Text& text : texts) {
      batch.slices.push_back({batch.tokens.size(), text.ids.size(), 0, {blocks.data() + block}});
      batch.tokens.insert(batch.tokens.end(), text.ids.begin(), text.ids.end());
      batch.types.insert(batch.types.end(), text.types.begin(), text.types.end());
      block += (text.ids.size() + 15) / 16;
    }
    CHECK(block <= blocks.size()) << block;
    batch.logit_rows.resize(batch.tokens.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    const auto hidden = static_cast<size_t>(files.spec.hidden);
    if (files.spec.token_types == 0) batch.types.clear();
    Vector all(batch.tokens.size() * hidden);
    loaded.decoder->Forward(
        batch, [&](const Worker& worker, size_t at, size_t count, float* rows, size_t stride) {
          if (worker.thread != 0) return;
          for (size_t i = 0; i < count; ++i)
            std::copy_n(rows + i * stride, hidden, all.data() + (at + i) * hidden);
        });
    std::vector<Vector> each;
    for (const StepBatch::Slice& slice : batch.slices) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(slice.first_row * hidden);
      each.emplace_back(begin, begin + static_cast<ptrdiff_t>(slice.rows * hidden));
    }
    return each;
  }
};

Vector Mean(const Vector& states, size_t hidden) {
  Vector mean(hidden);
  const size_t tokens = states.size() / hidden;
  for (size_t i = 0; i < states.size(); ++i)
    mean[i % hidden] += states[i] / static_cast<float>(tokens);
  return mean;
}

Vector First(const Vector& states, size_t hidden) {
  return Vector(states.begin(), states.begin() + static_cast<ptrdiff_t>(hidden));
}

Vector Dense(const std::string& folder, const Vector& x) {
  const Vector weight = ReadTensor(folder + "/model.safetensors", "linear.weight");
  Vector y;
  for (auto row = weight.begin(); row != weight.end(); row += static_cast<ptrdiff_t>(x.size()))
    y.push_back(std::inner_product(x.begin(), x.end(), row, 0.0f));
  return y;
}

float Rms(const Vector& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0f) /
                   static_cast<float>(x.size()));
}

void Normalise(Vector& x) {
  const float length = Rms(x) * std::sqrt(static_cast<float>(x.size()));
  for (float& value : x) value /= length;
}

// The largest and the RMS difference, in units of the reference's RMS.
struct EncoderDifference {
  double worst = 0, rms = 0;
};
EncoderDifference Compare(const Vector& got, const Vector& want) {
  CHECK(got.size() == want.size()) << got.size();
  EncoderDifference difference;
  Vector error(want.size());
  for (size_t i = 0; i < want.size(); ++i) error[i] = (got[i] - want[i]) / Rms(want);
  for (const float e : error) difference.worst = std::max(difference.worst, std::abs(double{e}));
  difference.rms = Rms(error);
  return difference;
}

// The outputs in the model's folder beside the encoder's: embeddings, or a reranker's scores.
std::vector<Vector> Outputs(const std::string& name, Encoder& encoder, const Json& golden,
                            const std::vector<Text>& texts) {
  const DecoderSpec& spec = encoder.files.spec;
  const auto hidden = static_cast<size_t>(spec.hidden);
  const bool classifies = spec.classifier.labels > 0;
  const bool of_mean =
      classifies ? spec.classifier.of_mean : golden.Find("pooling")->string() == "mean_tokens";
  std::vector<Vector> outputs;
  for (const Vector& states : encoder.Hidden(texts)) {
    Vector x = of_mean ? Mean(states, hidden) : First(states, hidden);
    if (classifies) {
      outputs.push_back(Classifier::Load(spec, *encoder.source)->Scores(x.data()));
      continue;
    }
    if (name == "embeddinggemma")
      for (const char* layer : {"/2_Dense", "/3_Dense"}) x = Dense(EncoderFolder(name) + layer, x);
    if (golden.Find("normalised")->boolean()) Normalise(x);
    outputs.push_back(std::move(x));
  }
  return outputs;
}

Vector Joined(const std::vector<Vector>& parts) {
  Vector all;
  for (const Vector& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The reference's outputs of each text.
std::vector<Vector> Wanted(const std::string& name, size_t texts) {
  const std::string file = EncoderFolder(name) + "/golden.safetensors";
  std::vector<Vector> wanted;
  if (name.find("reranker") != name.npos) {
    for (const float logit : ReadTensor(file, "logits.float32")) wanted.push_back({logit});
    return wanted;
  }
  for (size_t i = 0; i < texts; ++i)
    wanted.push_back(ReadTensor(file, "prompt" + std::to_string(i) + ".embedding.float32"));
  return wanted;
}

class Encoders : public ::testing::TestWithParam<std::string> {
 protected:
  const std::string name_ = GetParam();
  const Json golden_ = Json::ParseFile(EncoderFolder(name_) + "/golden.json").value();
  const std::vector<Text> texts_ = Texts(golden_);
  const std::vector<Vector> wanted_ = Wanted(name_, texts_.size());
};

TEST_P(Encoders, MatchTheReferenceInFloat32OnEveryIsaAndTwoRanks) {
  for (const kernels::Isa isa : kernels::UsableIsas())
    for (const std::vector<int>& threads : {std::vector<int>{2}, {1, 2}}) {
      Encoder encoder(name_, threads, isa, kernels::Dtype::kF32);
      const auto got = Outputs(name_, encoder, golden_, texts_);
      EXPECT_LE(Compare(Joined(got), Joined(wanted_)).worst, kBound)
          << kernels::Name(isa) << ", " << threads.size() << " ranks";
    }
}

// A text's hidden states do not depend on what else is in the step.
TEST_P(Encoders, ReadEachTextForItself) {
  Encoder encoder(name_, {2}, kernels::UsableIsas().back(), kernels::Dtype::kF32);
  const auto together = encoder.Hidden(texts_);
  for (size_t i = 0; i < texts_.size(); ++i)
    EXPECT_LE(Compare(encoder.Hidden({texts_[i]})[0], together[i]).worst, kBound) << i;
}

// A reranker's few scores do not measure it.
std::vector<std::string> EmbedderFixtures() {
  std::vector<std::string> names = tests::EncoderFixtures();
  std::erase_if(names, [](const std::string& name) { return name.find("reranker") != name.npos; });
  return names;
}

class Embedders : public Encoders {};

// Twice the error of the reference's own bfloat16 holds for a correct engine.
TEST_P(Embedders, StayNearTheReferenceInBf16) {
  Encoder encoder(name_, {2}, kernels::UsableIsas().back(), kernels::Dtype::kBf16);
  const auto got = Outputs(name_, encoder, golden_, texts_);
  double reference = 0;
  for (const Json& prompt : golden_.Find("prompts")->array()) {
    const double error = prompt.Find("bf16_rms_embedding_error")->number();
    reference += std::pow(error / prompt.Find("embedding_rms")->number(), 2);
  }
  reference = std::sqrt(reference / static_cast<double>(texts_.size()));
  EXPECT_LE(Compare(Joined(got), Joined(wanted_)).rms, 2 * reference);
}

INSTANTIATE_TEST_SUITE_P(Models, Encoders, ::testing::ValuesIn(tests::EncoderFixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

INSTANTIATE_TEST_SUITE_P(Models, Embedders, ::testing::ValuesIn(EmbedderFixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

}  // namespace
}  // namespace pinion
