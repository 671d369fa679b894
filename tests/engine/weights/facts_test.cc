// Rules for the text of `pinion model info`, held for every fixture.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/preset.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/cache_kinds.h"
#include "engine/spec/spec_facts.h"
#include "engine/weights/formats.h"
#include "engine/weights/quant_facts.h"
#include "engine/weights/summary.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Every checkpoint among the fixtures, as "models/llama" or "quantised/llama-q4_0.gguf".
std::vector<std::string> EveryFixture() {
  std::vector<std::string> found;
  for (const char* kind : {"models", "quantised", "embedders"})
    for (const auto& entry :
         std::filesystem::directory_iterator(StrCat(tests::TestData(), "/", kind)))
      if (entry.is_directory() || entry.path().extension() == ".gguf")
        found.push_back(StrCat(kind, "/", entry.path().filename().string()));
  std::sort(found.begin(), found.end());
  return found;
}

struct Described {
  explicit Described(const std::string& fixture)
      : files(FindModel(StrCat(tests::TestData(), "/", fixture)).value()),
        weights(OpenWeights(files).value()) {
    const FormatPlan formats = PlanFormats(files.spec, *weights, files.scheme,
                                           {kernels::Dtype::kBf16, IntegerProduct::kInt8})
                                   .value();
    text = FormatModel(files, *weights, formats);
    text = text.substr(0, text.find("\n  tensor "));
    for (const std::string& line : Split(text.substr(0, text.find("\n\n")), '\n')) {
      const size_t heading = line.find_first_not_of(' '), heading_end = line.find("  ", heading);
      const size_t value = line.find_first_not_of(' ', heading_end);
      if (value != std::string::npos)
        rows.emplace(Trim(line.substr(0, heading_end)), line.substr(value));
    }
  }
  // The rows of that heading, one after the other.
  std::string Row(const std::string& heading) const {
    std::string all;
    const auto [begin, end] = rows.equal_range(heading);
    for (auto row = begin; row != end; ++row) all += row->second + "\n";
    return all;
  }
  bool Any(const std::function<bool(const LayerSpec&)>& is) const {
    const auto& layers = files.spec.layer_specs;
    return std::any_of(layers.begin(), layers.end(), is);
  }

  ModelFiles files;
  std::unique_ptr<TensorSource> weights;
  std::string text;  // without the table of tensors
  std::multimap<std::string, std::string> rows;
};

bool Says(const std::string& text, const char* pattern) {
  return std::regex_search(text, std::regex(pattern));
}

// Whether a count of four digits or more has no separators; formulas and decimals have none.
bool HasPlainThousands(const std::string& text) {
  return Says(std::regex_replace(text, std::regex(R"(sqrt\(\d+\)|\.\d+)"), ""), R"(\d{4})");
}

class Facts : public ::testing::TestWithParam<std::string> {
 protected:
  const Described model_{GetParam()};
  const DecoderSpec& spec_ = model_.files.spec;
};

TEST_P(Facts, AreWordsForPeople) {
  EXPECT_FALSE(Says(model_.text, R"(\b1 [A-Za-z-]+s\b)")) << "a plural of one\n" << model_.text;
  EXPECT_FALSE(
      Says(model_.text, R"(\b([02-9]|\d\d+) (layer|head|token|group|score|tensor|file|expert)\b)"))
      << "a singular of several\n"
      << model_.text;
  EXPECT_FALSE(Says(model_.text, R"(\de\+\d)")) << "an exponent of a large number\n" << model_.text;
  EXPECT_FALSE(HasPlainThousands(model_.text.substr(model_.text.find("\n\n")))) << model_.text;
  for (const auto& [heading, value] : model_.rows)
    if (heading != "model" && heading != "prompt") {
      EXPECT_FALSE(HasPlainThousands(value)) << heading << " " << value;
    }
  for (const auto& [heading, value] : model_.rows)
    if (heading != "model" && heading != "prompt" && heading != "stored" &&
        heading != "quantised" && heading != "architecture" && heading != "part of" &&
        heading != "in memory") {
      EXPECT_FALSE(Says(value, "[a-z0-9]_[a-z]")) << "a field's name in '" << value << "'";
    }
}

TEST_P(Facts, NameThePartsThatThereAreAndNoOthers) {
  const auto has = [&](const char* heading) { return model_.rows.contains(heading); };
  const size_t recurrent = RecurrentLayers(spec_);
  EXPECT_EQ(has("MLP"), model_.Any([](const auto& layer) { return layer.mlp == MlpKind::kDense; }));
  EXPECT_EQ(has("experts"),
            model_.Any([](const auto& layer) { return layer.mlp == MlpKind::kExperts; }));
  EXPECT_EQ(has("window"), model_.Any([&](const auto& layer) {
    return layer.window > 0 && layer.window < spec_.max_positions;
  }));
  EXPECT_EQ(has("chunks"), model_.Any([](const auto& layer) { return layer.chunk > 0; }));
  EXPECT_EQ(has("recurrent"), recurrent > 0);
  EXPECT_EQ(has("state"), recurrent > 0);
  EXPECT_EQ(has("latent"), spec_.latent.kv_rank > 0);
  EXPECT_EQ(has("indexer"), spec_.index.top_k > 0);
  EXPECT_EQ(has("classifier"), spec_.classifier.labels > 0);
  EXPECT_EQ(has("embedder"), model_.files.embedder.has_value());
  EXPECT_EQ(model_.rows.count("rope"), spec_.ropes.size());
  EXPECT_THAT(model_.text, Not(HasSubstr("no head")));
  EXPECT_EQ(spec_.has_head(), Says(model_.Row("vocabulary"), "head (tied|separate)"));
  EXPECT_EQ(spec_.bidirectional, model_.text.find("KV") == std::string::npos)
      << "an encoder keeps nothing";
  EXPECT_EQ(recurrent > 0, Says(model_.text, "with the state\n"));
  EXPECT_EQ(!spec_.names.sinks.empty(), Says(model_.Row("attention"), "a learned sink per head"));
  EXPECT_EQ(spec_.moe.swiglu_limit > 0, Says(model_.Row("experts"), "SwiGLU with limit"));
  EXPECT_EQ(spec_.latent.kv_rank > 0, !Says(model_.Row("attention"), "key-value head"));
}

// "in 5 of 6 layers", "in every layer": how many layers all phrases of `text` name.
size_t LayersNamed(const std::string& text, int layers) {
  static const std::regex kPhrase(R"(in (every layer|(\d+) of \d+ layers?))");
  size_t named = 0;
  for (std::sregex_iterator found(text.begin(), text.end(), kPhrase), end; found != end; ++found)
    named += (*found)[2].matched ? std::stoul((*found)[2]) : static_cast<size_t>(layers);
  return named;
}

TEST_P(Facts, NameEveryLayerWithItsTokens) {
  const auto& layers = spec_.layer_specs;
  const auto count = [&](const auto& is) {
    return static_cast<size_t>(std::count_if(layers.begin(), layers.end(), is));
  };
  if (spec_.ropes.size() > 1) {
    EXPECT_EQ(LayersNamed(model_.Row("rope"), spec_.layers), count([](const LayerSpec& layer) {
                return Attends(layer.mixer) && layer.rope >= 0;
              }));
  }
  EXPECT_EQ(LayersNamed(model_.Row("window"), spec_.layers), count([&](const LayerSpec& layer) {
              return layer.window > 0 && layer.window < spec_.max_positions;
            }));
  for (const LayerSpec& layer : layers) {
    if (layer.window == 0 || layer.window >= spec_.max_positions) continue;
    const int seen = spec_.bidirectional ? layer.window - 1 : layer.window;  // beside itself
    EXPECT_THAT(model_.Row("window"),
                HasSubstr(StrCat(seen, " tokens ", spec_.bidirectional ? "each way " : "")));
  }
  EXPECT_EQ(LayersNamed(model_.Row("MLP").substr(0, model_.Row("MLP").find("gated")), spec_.layers),
            count([](const LayerSpec& layer) { return layer.mlp == MlpKind::kDense; }));
  const std::string cache = model_.Row("cache");
  if (cache.empty()) return;
  size_t kept = 0;
  for (const CacheKind& kind : CacheKinds(spec_, kernels::KvDtype::kBf16, 1)) {
    kept += kind.layers;
    if (kind.most_tokens > 0) {
      EXPECT_THAT(cache, HasSubstr(StrCat("the last ", kind.most_tokens, " tokens in ")));
    }
  }
  EXPECT_EQ(LayersNamed(cache, spec_.layers),
            kept + count([](const LayerSpec& layer) { return layer.kv_from >= 0; }));
}

TEST_P(Facts, SayHowWeightsAreQuantised) {
  bool quantised = false;
  for (const std::string& name : model_.weights->Names())
    quantised = quantised || model_.weights->Quantised(name);
  const std::string in_memory = model_.Row("in memory");
  EXPECT_EQ(quantised, !in_memory.empty());
  EXPECT_EQ(quantised, Says(model_.Row("quantised"), "a scale (and an offset )?for each "));
  EXPECT_EQ(quantised, Says(model_.Row("activations"), "^(not )?rounded"));
  EXPECT_EQ(quantised, Says(model_.text, "weights, dequantised"));
}

// Floats of few bits have no other form; of integers it is worth a word.
TEST_P(Facts, CallOnlyIntegersSymmetric) {
  const auto [begin, end] = model_.rows.equal_range("quantised");
  for (auto row = begin; row != end; ++row) {
    if (!Says(row->second, "in (FP8|MXFP4)")) continue;
    EXPECT_THAT(row->second, Not(HasSubstr("symmetric")));
  }
}

// However many experts there are, their tensors take as many lines as those of one.
TEST_P(Facts, ShowExpertsOnce) {
  const std::string all = FormatModel(model_.files, *model_.weights);
  EXPECT_FALSE(Says(all, R"(\.experts\.\d)"));
  if (Says(all, R"(\.experts\.\*)")) {
    const auto experts = static_cast<size_t>(spec_.moe.router.experts);
    const size_t layers = LayersNamed(
        model_.Row("experts").substr(0, model_.Row("experts").find(", ")), spec_.layers);
    EXPECT_TRUE(Says(all, StrCat(R"(experts\.\*\.\S+ .*  )", experts * layers, "  ").c_str()))
        << all;
  }
}

TEST_P(Facts, SayWhatAClassifierScores) {
  if (spec_.classifier.labels != 1) return;
  EXPECT_THAT(model_.Row("classifier"),
              HasSubstr("scores how well a document answers a query, read together; from the "));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Facts, ::testing::ValuesIn(EveryFixture()),
                         [](const auto& fixture) { return tests::TestName(fixture.param); });

TEST(SpecFacts, SeparateThousands) {
  for (const std::string& preset : PresetNames())
    for (const auto& [heading, value] : SpecFacts(FindModel("preset:" + preset).value().spec))
      EXPECT_FALSE(HasPlainThousands(value)) << preset << ": " << heading << " " << value;
}

TEST(SpecFacts, SayWhatSeveralLabelsAreOf) {
  DecoderSpec spec = Described("embedders/bert-reranker").files.spec;
  spec.classifier.labels = 3;
  for (const auto& [heading, value] : SpecFacts(spec))
    if (heading == "classifier") {
      EXPECT_EQ(value, "3 labels of a text or of a pair, from the first token's state");
    }
}

// As sentence-transformers 5.4 and later write the folder of Qwen3-Reranker.
TEST(SummaryFacts, NameAGenerativeReranker) {
  const std::string folder = ::testing::TempDir() + "/pinion_facts_test";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(tests::TestData() + "/embedders/qwen3-reranker", folder);
  const auto text = [&] {
    const ModelFiles files = FindModel(folder).value();
    return FormatModel(files, *OpenWeights(files).value());
  };
  EXPECT_THAT(text(), Not(HasSubstr("reranker  ")));
  ASSERT_TRUE(WriteFile(folder + "/config_sentence_transformers.json",
                        R"({"model_type": "CrossEncoder"})"));
  EXPECT_THAT(text(),
              HasSubstr("  reranker      scores how well a document answers a query, by the "
                        "logits of \"yes\" and \"no\" (--task score)\n"));
  std::filesystem::remove_all(folder);
}

// A root is told only if it is one: 1 / 0.012 is not that of 6944.
TEST(SpecFacts, SayHowScoresAreScaled) {
  DecoderSpec spec = Described("models/llama").files.spec;
  const auto attention = [&](float scale) {
    spec.attention_scale = scale;
    for (const auto& [heading, value] : SpecFacts(spec))
      if (heading == "attention") return value;
    return std::string();
  };
  EXPECT_THAT(attention(1 / std::sqrt(6944.0f)), HasSubstr("scores divided by sqrt(6944)"));
  EXPECT_THAT(attention(0.0078125f), HasSubstr("scores divided by sqrt(16384)"));
  EXPECT_THAT(attention(0.012f), HasSubstr("scores times 0.012"));
  EXPECT_THAT(attention(1), HasSubstr("scores not scaled"));
}

// No two of these read alike, although all are a Llama's or a Qwen's matrices in 4 or 8 bits.
TEST(QuantisedFacts, TellVariantsApart) {
  std::map<std::string, std::string> seen;
  for (const char* name : {"llama-w8a8", "llama-w8a8-static", "llama-w8a8-static-asym",
                           "llama-fp8-channel", "llama-fp8-tensor", "llama-fp8-static", "qwen2-awq",
                           "qwen2-awq-g128", "llama-gptq-sym", "llama-gptq-g-1", "llama-gptq-8bit",
                           "llama-gptq-actorder", "llama-w4a16", "llama-w4a16-asym", "qwen3-fp8"}) {
    const Described model(StrCat("quantised/", name));
    const std::string facts = model.Row("quantised") + model.Row("activations");
    const auto [other, is_new] = seen.emplace(facts, name);
    EXPECT_TRUE(is_new) << name << " reads like " << other->second << ":\n" << facts;
  }
}

// A checkpoint's scheme for activations is shown beside the one in use.
TEST(QuantisedFacts, TellTheCheckpointsWishForActivations) {
  Described model("quantised/llama-w4a16");
  const auto text = [&](const char* asked, IntegerProduct product) {
    model.files.config.Set(
        "quantization_config",
        Json::Parse(StrCat(R"({"config_groups": {"group_0": {"input_activations": )", asked, "}}}"))
            .value());
    const auto formats = PlanFormats(model.files.spec, *model.weights, model.files.scheme,
                                     {kernels::Dtype::kBf16, product});
    return ActivationsText(model.files, formats.value());
  };
  constexpr const char* kNvfp4 = R"({"num_bits": 4, "type": "float", "strategy": "tensor_group",
                                     "group_size": 16, "dynamic": "local"})";
  EXPECT_EQ(text(kNvfp4, IntegerProduct::kFloat),
            "not rounded; the checkpoint asks for 4-bit floats, dynamic for each 16 inputs");
  EXPECT_EQ(
      text(R"({"num_bits": 8, "strategy": "tensor", "group_size": null})", IntegerProduct::kFloat),
      "not rounded; the checkpoint asks for 8-bit integers, static for each tensor");
  EXPECT_EQ(
      text(R"({"num_bits": 8, "strategy": "token", "dynamic": true})", IntegerProduct::kFloat),
      "not rounded; the checkpoint asks for 8-bit integers, dynamic for each token");
  EXPECT_THAT(text(kNvfp4, IntegerProduct::kInt8),
              ::testing::EndsWith("leaves them unrounded; the checkpoint asks for 4-bit floats, "
                                  "dynamic for each 16 inputs"));
  EXPECT_THAT(text("null", IntegerProduct::kInt8), Not(HasSubstr("asks")));
}

TEST(QuantisedFacts, TellHowFp8RoundsActivations) {
  const auto row = [](const char* name) {
    return Described(StrCat("quantised/", name)).Row("activations");
  };
  EXPECT_THAT(row("qwen3-fp8"),
              HasSubstr("rounded to 8-bit floats (e4m3) with a scale for each 128 "
                        "inputs of a token, as the checkpoint asks (dynamic)"));
  EXPECT_THAT(row("llama-fp8-tensor"), HasSubstr("a scale for each token, as"));
  EXPECT_THAT(row("llama-fp8-static"),
              HasSubstr("the checkpoint's scale for each matrix (static)"));
}

TEST(QuantisedFacts, NameTheMatrixThatLatentAttentionHoldsInFloats) {
  EXPECT_THAT(Described("quantised/deepseekv3-fp8").Row("in memory"),
              HasSubstr("2 matrices dequantised to bfloat16 (2 of them kv_b)"));
}

}  // namespace
}  // namespace pinion
