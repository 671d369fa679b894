#include "engine/checkpoint/preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/spec_names.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

using kernels::Dtype;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DecoderSpec Preset(const std::string& name) { return ReadSpec(PresetConfig(name).value()).value(); }

// All elements of a tensor as floats.
std::vector<float> Floats(const TensorSource& source, const std::string& name) {
  const TensorInfo info = source.Find(name).value();
  std::vector<std::byte> scratch;
  const std::byte* data = source.Rows(info, 0, static_cast<size_t>(info.shape[0]), scratch);
  std::vector<float> values(ElementCount(info.shape));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, 2);
    if (info.dtype == Dtype::kF32) std::memcpy(&values[i], data + 4 * i, 4);
    if (info.dtype == Dtype::kBf16) values[i] = kernels::ToFloat(kernels::Bf16{bits});
    if (info.dtype == Dtype::kF16) values[i] = kernels::ToFloat(kernels::F16{bits});
  }
  return values;
}

// Parameters as the models' publishers count them.
TEST(Preset, HasTheRealModelsSize) {
  EXPECT_THAT(
      PresetNames(),
      ElementsAre("tiny", "opt-125m", "qwen2.5-0.5b", "llama-3.2-1b", "tinyllama-1.1b",
                  "llama-2-7b", "llama-3.1-8b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b",
                  "qwen3.5-0.8b", "mistral-7b", "ministral-3-3b", "phi-4-mini", "gemma-2-2b",
                  "gemma-3-1b", "gemma-3n-e2b", "gemma-4-e2b", "gemma-4-31b", "olmo-2-1b",
                  "smollm3-3b", "granite-3-2b", "granite-4.0-h-350m", "falcon-h1-0.5b", "bamba-9b",
                  "nemotron-nano-9b-v2", "lfm2-350m", "bert-base", "mixtral-8x7b", "qwen3-30b-a3b",
                  "qwen3.5-35b-a3b", "qwen3-next-80b-a3b", "gemma-4-26b-a4b", "gpt-oss-20b",
                  "deepseek-v2-lite", "glm-4.7-flash", "kimi-linear-48b-a3b"));
  EXPECT_EQ(ParameterCount(Preset("opt-125m")), 125'239'296u);
  EXPECT_EQ(ParameterCount(Preset("qwen2.5-0.5b")), 494'032'768u);
  EXPECT_EQ(ParameterCount(Preset("llama-3.2-1b")), 1'235'814'400u);
  EXPECT_EQ(ParameterCount(Preset("tinyllama-1.1b")), 1'100'048'384u);
  EXPECT_EQ(ParameterCount(Preset("llama-2-7b")), 6'738'415'616u);
  EXPECT_EQ(ParameterCount(Preset("llama-3.1-8b")), 8'030'261'248u);
  EXPECT_EQ(ParameterCount(Preset("qwen3-0.6b")), 596'049'920u);
  EXPECT_EQ(ParameterCount(Preset("qwen3-1.7b")), 1'720'574'976u);
  EXPECT_EQ(ParameterCount(Preset("qwen3-4b")), 4'022'468'096u);
  EXPECT_EQ(ParameterCount(Preset("qwen3-8b")), 8'190'735'360u);
  EXPECT_EQ(ParameterCount(Preset("mistral-7b")), 7'241'732'096u);
  EXPECT_EQ(ParameterCount(Preset("phi-4-mini")), 3'836'021'760u);
  EXPECT_EQ(ParameterCount(Preset("gemma-2-2b")), 2'614'341'888u);
  EXPECT_EQ(ParameterCount(Preset("gemma-3-1b")), 999'885'952u);
  EXPECT_EQ(ParameterCount(Preset("qwen3.5-0.8b")), 752'393'024u);
  EXPECT_EQ(ParameterCount(Preset("gemma-3n-e2b")), 4'435'182'688u);
  EXPECT_EQ(ParameterCount(Preset("granite-4.0-h-350m")), 340'332'224u);
  EXPECT_EQ(ParameterCount(Preset("lfm2-350m")), 354'483'968u);
  EXPECT_EQ(ParameterCount(Preset("bert-base")), 109'482'240u - 590'592u) << "without its pooler";
  EXPECT_EQ(ParameterCount(Preset("olmo-2-1b")), 1'484'916'736u);
  EXPECT_EQ(ParameterCount(Preset("granite-3-2b")), 2'533'531'648u);
  EXPECT_EQ(ParameterCount(Preset("mixtral-8x7b")), 46'702'792'704u);
  EXPECT_EQ(ParameterCount(Preset("qwen3-30b-a3b")), 30'532'122'624u);
  EXPECT_EQ(ParameterCount(Preset("gpt-oss-20b")), 20'914'757'184u);
  EXPECT_EQ(ParameterCount(Preset("deepseek-v2-lite")), 15'706'484'224u);
  EXPECT_EQ(ParameterCount(Preset("gemma-4-e2b")), 4'628'569'379u) << "without sight and hearing";
  EXPECT_EQ(ParameterCount(Preset("gemma-4-26b-a4b")), 25'233'141'790u);
  EXPECT_EQ(ParameterCount(Preset("gemma-4-31b")), 30'697'345'340u);
  EXPECT_EQ(ParameterCount(Preset("ministral-3-3b")), 3'429'006'336u);
  EXPECT_EQ(ParameterCount(Preset("smollm3-3b")), 3'075'098'624u);
  EXPECT_EQ(ParameterCount(Preset("falcon-h1-0.5b")), 521'411'104u);
  EXPECT_EQ(ParameterCount(Preset("bamba-9b")), 9'780'235'392u);
  EXPECT_EQ(ParameterCount(Preset("nemotron-nano-9b-v2")), 8'888'227'328u);
  EXPECT_EQ(ParameterCount(Preset("qwen3.5-35b-a3b")), 34'660'610'688u);
  EXPECT_EQ(ParameterCount(Preset("qwen3-next-80b-a3b")), 79'674'391'296u);
  EXPECT_EQ(ParameterCount(Preset("glm-4.7-flash")), 29'943'393'920u);
  EXPECT_EQ(ParameterCount(Preset("kimi-linear-48b-a3b")), 49'122'681'728u);
  EXPECT_EQ(KvBytesPerToken(Preset("llama-3.2-1b"), kernels::KvDtype::kBf16), 32u * 1024);
  const DecoderSpec latent = Preset("deepseek-v2-lite");  // the latent alone, and one scale
  EXPECT_EQ(KvBytesPerToken(latent, kernels::KvDtype::kBf16), 27u * 576 * 2);
  EXPECT_EQ(KvBytesPerToken(latent, kernels::KvDtype::kE4m3), 27u * (576 + 2));
}

TEST(Preset, CanHaveFewerLayers) {
  const DecoderSpec whole = Preset("qwen3-30b-a3b"), two = Preset("qwen3-30b-a3b@2");
  EXPECT_EQ(two.layers, 2);
  EXPECT_EQ(two.layer_specs.size(), 2u);
  EXPECT_EQ((ParameterCount(whole) - ParameterCount(two)) % 46, 0u);
  EXPECT_THAT(PresetConfig("qwen3-30b-a3b@49").error().message, HasSubstr("has 48 layers, not 49"));
  EXPECT_THAT(PresetConfig("qwen3-30b-a3b@x").error().message, HasSubstr("'x'"));
}

// Layers by kind, as "2 delta_net, 1 attention".
std::string KindsOfLayers(const std::string& name) {
  const DecoderSpec spec = Preset(name);
  std::map<std::string, int> counts;
  for (const LayerSpec& layer : spec.layer_specs) {
    std::string kind = layer.mixer == MixerKind::kNone ? "" : Name(layer.mixer);
    if (Attends(layer.mixer)) kind += layer.window > 0 ? " in a window" : "";
    if (Attends(layer.mixer) && layer.rope < 0) kind += " without rope";
    if (layer.mlp == MlpKind::kExperts) kind += " + experts";
    if (layer.mlp == MlpKind::kDense) kind += " + dense";
    ++counts[kind];
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : counts) parts.push_back(StrCat(count, " ", kind));
  return Join(parts, ", ");
}

// A hybrid's first layers are often all recurrent; those that are kept have every kind, if there
// are enough, and otherwise attention and the most frequent ones.
TEST(Preset, FewerLayersAreMixedAsAllAre) {
  EXPECT_EQ(KindsOfLayers("bamba-9b@4"), "1 attention + dense, 3 mamba2 + dense");
  EXPECT_EQ(KindsOfLayers("bamba-9b@1"), "1 attention + dense");
  EXPECT_EQ(KindsOfLayers("granite-4.0-h-350m@4"),
            "1 attention without rope + dense, 3 mamba2 + dense");
  EXPECT_EQ(KindsOfLayers("lfm2-350m@4"), "1 attention + dense, 3 short_conv + dense");
  EXPECT_EQ(KindsOfLayers("nemotron-nano-9b-v2@4"),
            "1  + dense, 1 attention without rope, 2 mamba2");
  EXPECT_EQ(KindsOfLayers("nemotron-nano-9b-v2@2"), "1 attention without rope, 1 mamba2");
  EXPECT_EQ(KindsOfLayers("qwen3.5-35b-a3b@4"), "1 attention + experts, 3 delta_net + experts");
  EXPECT_EQ(KindsOfLayers("qwen3-next-80b-a3b@4"), "1 attention + experts, 3 delta_net + experts");
  EXPECT_EQ(KindsOfLayers("kimi-linear-48b-a3b@4"),
            "1 attention without rope + experts, 1 delta_net + dense, 2 delta_net + experts");
  EXPECT_EQ(KindsOfLayers("kimi-linear-48b-a3b@2"),
            "1 attention without rope + experts, 1 delta_net + experts");
  EXPECT_EQ(KindsOfLayers("gemma-4-31b@4"), "1 attention + dense, 3 attention in a window + dense");
  EXPECT_EQ(KindsOfLayers("smollm3-3b@4"), "3 attention + dense, 1 attention without rope + dense");
  EXPECT_EQ(KindsOfLayers("falcon-h1-0.5b@2"), "2 attention_mamba2 + dense");
}

// Of 35 layers the last 20 use keys and values of others: the layers that remain must have theirs.
TEST(Preset, FewerLayersShareNoKeysThatAreGone) {
  const auto sharing = [](const std::string& name) {
    const DecoderSpec spec = Preset(name);
    return std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                         [](const LayerSpec& layer) { return layer.kv_from >= 0; });
  };
  EXPECT_EQ(sharing("gemma-4-e2b"), 20);
  EXPECT_EQ(sharing("gemma-4-e2b@20"), 5);
  EXPECT_EQ(sharing("gemma-4-e2b@4"), 0);
  EXPECT_EQ(sharing("gemma-3n-e2b@4"), 0);
}

TEST(Preset, OpensWithEveryTensorHoweverFewLayersAreKept) {
  std::vector<std::string> names = PresetNames();
  for (const std::string& name : PresetNames())
    for (const char* layers : {"@1", "@2"}) names.push_back(name + layers);
  for (const std::string& name : names) {
    const auto files = FindModel("preset:" + name);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_TRUE(files->folder.empty());
    const auto weights = OpenWeights(*files);
    ASSERT_TRUE(weights);
    for (const TensorSpec& tensor : TensorList(files->spec)) {
      const auto info = (*weights)->Find(tensor.name);
      ASSERT_TRUE(info) << info.error().message;
      EXPECT_EQ(info->shape, tensor.shape);
    }
  }
}

// The values are part of the contract: measurements and goldens on other machines rely on them.
TEST(MadeUpWeights, AreTheSameEverywhere) {
  const auto source = MakeUpWeights(Preset("tiny"), "float32", 7);
  const auto values = Floats(*source, "model.layers.1.self_attn.q_proj.weight");
  // Computed apart, from the formulas in made_up_weights.cc.
  EXPECT_FLOAT_EQ(values[0], -0.11248267f);
  EXPECT_FLOAT_EQ(values[1], -0.16407247f);
  EXPECT_FLOAT_EQ(values[4095], 0.15476939f);
}

TEST(MadeUpWeights, DoNotDependOnHowTheyAreRead) {
  const auto source = MakeUpWeights(Preset("tiny"), "bfloat16", 3);
  const std::string name = "model.layers.0.mlp.down_proj.weight";  // rows of 176
  const TensorInfo info = source->Find(name).value();
  std::vector<std::byte> whole_scratch, scratch;
  const std::byte* whole = source->Rows(info, 0, 64, whole_scratch);
  for (const auto& [row, count] : {std::pair{0, 1}, {5, 7}, {63, 1}, {10, 0}}) {
    const std::byte* part = source->Rows(info, row, count, scratch);
    EXPECT_EQ(std::vector(part, part + count * 352),
              std::vector(whole + row * 352, whole + (row + count) * 352));
  }
}

TEST(MadeUpWeights, SplitOddRowsRight) {
  DecoderSpec spec = Preset("tiny");
  spec.intermediate = 75;  // rows of an odd length begin in the middle of a pair
  const auto source = MakeUpWeights(spec, "float32", 3);
  const TensorInfo info = source->Find("model.layers.0.mlp.down_proj.weight").value();
  const auto whole = Floats(*source, info.name);
  std::vector<std::byte> scratch;
  for (size_t row = 0; row < 64; ++row) {
    const auto* part = reinterpret_cast<const float*>(source->Rows(info, row, 1, scratch));
    EXPECT_EQ(std::vector(part, part + 75),
              std::vector(whole.begin() + row * 75, whole.begin() + row * 75 + 75));
  }
}

TEST(MadeUpWeights, DifferByNameAndSeed) {
  const DecoderSpec spec = Preset("tiny");
  const auto a = MakeUpWeights(spec, "float32", 1), b = MakeUpWeights(spec, "float32", 2);
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_NE(Floats(*a, q), Floats(*b, q));
  EXPECT_NE(Floats(*a, q), Floats(*a, "model.layers.1.self_attn.q_proj.weight"));
  EXPECT_EQ(Floats(*a, q), Floats(*MakeUpWeights(spec, "float32", 1), q));
}

TEST(MadeUpWeights, AreRoughlyNormalAtTheRightScale) {
  const auto source = MakeUpWeights(Preset("opt-125m"), "float32", 0);
  const auto values = Floats(*source, "model.decoder.layers.3.fc1.weight");
  double sum = 0, squares = 0, within_one = 0;
  const double deviation = 1 / std::sqrt(768.0);
  for (const float value : values) {
    sum += value;
    squares += value * value;
    within_one += std::abs(value) < deviation;
  }
  const auto count = static_cast<double>(values.size());  // 2.4 M: the bounds are 5 sigma and more
  EXPECT_NEAR(sum / count, 0, 5 * deviation / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count) / deviation, 1, 0.005);
  EXPECT_NEAR(within_one / count, 0.68, 0.02);
  for (const float one : Floats(*source, "model.decoder.final_layer_norm.weight"))
    EXPECT_EQ(one, 1.0f);
}

TEST(MadeUpWeights, RoundTheSameValuesToEveryDtype) {
  const DecoderSpec spec = Preset("tiny");
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const auto exact = Floats(*MakeUpWeights(spec, "float32", 9), name);
  const auto bf16 = Floats(*MakeUpWeights(spec, "bfloat16", 9), name);
  const auto f16 = Floats(*MakeUpWeights(spec, "float16", 9), name);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(bf16[i], kernels::ToFloat(kernels::ToBf16(exact[i])));
    EXPECT_EQ(f16[i], kernels::ToFloat(kernels::ToF16(exact[i])));
  }
}

TEST(MadeUpTokenizer, FillsTheVocabularyExactly) {
  for (const char* name : {"tiny", "opt-125m", "qwen2.5-0.5b", "llama-3.2-1b"}) {
    const Json config = PresetConfig(name).value();
    const MadeUpTokenizer made = MakeUpTokenizer(config);
    const Json& model = *made.tokenizer.Find("model");
    std::set<std::string> tokens;
    std::set<int64_t> ids;
    for (const auto& [token, id] : model.Find("vocab")->object()) {
      EXPECT_FALSE(token.empty());
      tokens.insert(token);
      ids.insert(id.integer());
    }
    const auto size = static_cast<size_t>(Preset(name).vocabulary);
    EXPECT_EQ(tokens.size(), size) << name;
    EXPECT_EQ(ids.size(), size);
    EXPECT_EQ(*ids.rbegin(), static_cast<int64_t>(size) - 1);
    for (const Json& merge : model.Find("merges")->array()) {
      const auto sides = Split(merge.string(), ' ');
      ASSERT_EQ(sides.size(), 2u);
      EXPECT_TRUE(tokens.contains(sides[0]) && tokens.contains(sides[1]) &&
                  tokens.contains(sides[0] + sides[1]))
          << merge.string();
    }
  }
}

TEST(MadeUpTokenizer, GivesSpecialTokensTheIdsOfTheConfig) {
  const MadeUpTokenizer made = MakeUpTokenizer(PresetConfig("llama-3.2-1b").value());
  const auto id_of = [&](const char* token) {
    const Json* id = made.tokenizer.Find("model")->Find("vocab")->Find(token);
    return id ? id->integer() : -1;
  };
  EXPECT_EQ(id_of("<s>"), 128000);
  EXPECT_EQ(id_of("</s>"), 128001);
  EXPECT_EQ(id_of("<|end|>"), 128008);
  EXPECT_EQ(made.tokenizer_config.Find("eos_token")->string(), "</s>");
  EXPECT_EQ(made.generation_config.Find("bos_token_id")->integer(), 128000);
}

// Every token's bytes are there, so every text comes back as it was.
TEST(MadeUpTokenizer, TurnsTextIntoIdsAndBack) {
  for (const char* name : {"tiny", "opt-125m", "qwen2.5-0.5b"}) {
    const auto files = FindModel(std::string("preset:") + name).value();
    const auto tokenizer = OpenTokenizer(files);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->vocabulary_size(), static_cast<size_t>(files.spec.vocabulary));
    EXPECT_TRUE((*tokenizer)->chat_template().has_value());
    for (const std::string text : {"Hello, how does the computer work?", "na\u00efve \u65e5\u672c",
                                   "  two\n\tlines  ", ""}) {
      const auto ids = (*tokenizer)->Encode(text, true).value();
      ASSERT_FALSE(ids.empty());
      EXPECT_EQ(ids[0], files.spec.bos_id);
      EXPECT_EQ((*tokenizer)->Decode(ids, true), text);
    }
    const auto ids = (*tokenizer)->Encode(" the<|start|>", false).value();
    EXPECT_EQ(ids.size(), 2u);
    EXPECT_TRUE((*tokenizer)->is_special(ids[1]));
  }
}

}  // namespace
}  // namespace pinion
