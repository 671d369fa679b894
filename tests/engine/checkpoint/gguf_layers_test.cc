// A GGUF file's fields of layers: each refusal's sentence, and the allowed values next to it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"

namespace pinion {
namespace {

using ::testing::StartsWith;

// Of every architecture: two layers of four heads, 16 wide.
constexpr std::string_view kUsual =
    R"({"block_count": 2, "embedding_length": 64, "feed_forward_length": 128,
        "context_length": 512, "attention.head_count": 4,
        "attention.layer_norm_rms_epsilon": 1e-5})";

struct Case {
  const char *name, *architecture;
  const char* metadata;  // beside the usual one, without the architecture's prefix
  const char* says = "";
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.metadata; }

std::string ErrorOf(const Case& each) {
  GgufFile file;
  file.header.metadata = Json::Object{{"general.architecture", each.architecture}};
  for (const std::string_view part : {kUsual, std::string_view(each.metadata)}) {
    const Json entries = Json::Parse(part).value();
    for (const auto& [key, value] : entries.object())
      file.header.metadata.Set(StrCat(each.architecture, ".", key), value);
  }
  const auto config = GgufConfig(file);
  return config ? "no error" : config.error().message;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

class RefusedLayers : public ::testing::TestWithParam<Case> {};

TEST_P(RefusedLayers, AreNamedWithTheAllowedValues) {
  EXPECT_EQ(ErrorOf(GetParam()), GetParam().says);
}

constexpr Case kRefused[] = {
    {"NoLayer", "llama", R"({"block_count": 0})",
     "'block_count' is 0, 0 of them to predict further tokens, want 1 to 1024 others"},
    {"TooManyLayers", "llama", R"({"block_count": 1025})",
     "'block_count' is 1025, 0 of them to predict further tokens, want 1 to 1024 others"},
    {"OnlyFurtherLayers", "llama", R"({"nextn_predict_layers": 2})",
     "'block_count' is 2, 2 of them to predict further tokens, want 1 to 1024 others"},
    {"ANumberThatIsText", "llama", R"({"attention.key_length": "wide"})",
     "'attention.key_length' is \"wide\", want a whole number"},
    {"ANumberBelowZero", "llama", R"({"nextn_predict_layers": -1})",
     "'nextn_predict_layers' is -1, want a whole number"},
    {"ValuesOfAnotherWidth", "llama",
     R"({"attention.key_length": 16, "attention.value_length": 32})",
     "'attention.key_length' is 16 and 'attention.value_length' 32, want the same width"},
    {"MoreRotatedThanAHeadHas", "llama", R"({"rope.dimension_count": 17})",
     "'rope.dimension_count' is 17, want at most the heads' width, 16"},
    {"LatentsOfOldFiles", "deepseek2", R"({"attention.kv_lora_rank": 48})",
     "there is no 'attention.key_length_mla': the file is of early 2025 or older; convert the "
     "model with a current llama.cpp"},
    {"NoPatternOfTwoHeads", "gemma4", R"({"attention.key_length_swa": 16})",
     "'attention.sliding_window_pattern' is missing, want a list with an entry for each of 2 "
     "layers"},
    {"APatternThatIsShort", "llama",
     R"({"attention.sliding_window": 8, "attention.sliding_window_pattern": [true]})",
     "'attention.sliding_window_pattern' has 1 entries, want a list with an entry for each of 2 "
     "layers"},
    {"RecurrentLayersThatAreNoList", "qwen35", R"({"attention.recurrent_layers": 3})",
     "'attention.recurrent_layers' is an integer, want a list with an entry for each of 2 layers"},
    {"OneNumberOfKvHeadsBesideConvolutions", "lfm2", R"({"attention.head_count_kv": 2})",
     "'attention.head_count_kv' is an integer, want a list with an entry for each of 2 layers"},
    {"NoKvHeadsBesideDeltaNet", "kimi-linear",
     R"({"attention.key_length_mla": 32, "rope.dimension_count": 16})",
     "'attention.head_count_kv' is missing, want a list with an entry for each of 2 layers"},
    {"KvHeadsOfOneLayer", "llama", R"({"attention.head_count_kv": [2]})",
     "'attention.head_count_kv' has 1 entries, want a list with an entry for each of 2 layers"},
    {"KvHeadsBelowZero", "llama", R"({"attention.head_count_kv": [2, -1]})",
     "'attention.head_count_kv' holds -1, want whole numbers"},
    {"KvHeadsThatAreText", "llama", R"({"attention.head_count_kv": [2, "two"]})",
     "'attention.head_count_kv' holds \"two\", want whole numbers"},
    {"WidthsThatAreText", "gemma4",
     R"({"feed_forward_length": [128, "wide"], "attention.key_length_swa": 16,
         "attention.sliding_window_pattern": [true, false]})",
     "'feed_forward_length' holds \"wide\", want whole numbers"},
    {"NarrowValuesInWindows", "gemma4",
     R"({"attention.key_length_swa": 16, "attention.value_length_swa": 8,
         "attention.sliding_window_pattern": [true, false]})",
     "in layers with a window keys are 16 wide, values 8 and 16 of a head are rotated, want the "
     "same width"},
    {"HalfRotatedInWindows", "gemma4",
     R"({"attention.key_length_swa": 16, "rope.dimension_count_swa": 8,
         "attention.sliding_window_pattern": [true, false]})",
     "in layers with a window keys are 16 wide, values 16 and 8 of a head are rotated, want the "
     "same width"},
    {"OtherKvHeadsInWindows", "gemma4",
     R"({"block_count": 3, "attention.key_length_swa": 16, "attention.head_count_kv": [2, 4, 1],
         "attention.sliding_window_pattern": [true, false, true]})",
     "'attention.head_count_kv' holds 2 and 1 for layers with a window, want the same number"},
    {"OtherKvHeads", "llama", R"({"attention.head_count_kv": [2, 1]})",
     "'attention.head_count_kv' holds 1, want the same number for all layers"},
    {"ALayerWithoutKvHeads", "llama", R"({"attention.head_count_kv": [2, 0]})",
     "'attention.head_count_kv' holds 0, want the same number for all layers"},
    {"OtherKvHeadsBesideConvolutions", "lfm2", R"({"attention.head_count_kv": [2, 1]})",
     "'attention.head_count_kv' holds 1, want the same number for all layers, or 0"},
    {"StateHeadsOfUnequalWidths", "qwen35", R"({"ssm.inner_size": 64, "ssm.time_step_rank": 3})",
     "'ssm.inner_size' is 64 and 'ssm.time_step_rank' is 3, want both above 0 and the first a "
     "multiple of the second"},
    {"NoStateHeads", "qwen35", R"({"ssm.inner_size": 64})",
     "'ssm.inner_size' is 64 and 'ssm.time_step_rank' is 0, want both above 0 and the first a "
     "multiple of the second"},
    {"StateHeadsWithoutWidth", "qwen35", R"({"ssm.time_step_rank": 2})",
     "'ssm.inner_size' is 0 and 'ssm.time_step_rank' is 2, want both above 0 and the first a "
     "multiple of the second"},
};
INSTANTIATE_TEST_SUITE_P(Gguf, RefusedLayers, ::testing::ValuesIn(kRefused), NameOf);

class AllowedLayers : public ::testing::TestWithParam<Case> {};

// The tensors come after the layers.
TEST_P(AllowedLayers, AreNotRefused) {
  EXPECT_THAT(ErrorOf(GetParam()), StartsWith("there is no tensor 'token_embd.weight'"));
}

constexpr Case kAllowed[] = {
    {"Usual", "llama", "{}"},
    {"AsManyLayersAsThereMayBe", "llama", R"({"block_count": 1024})"},
    {"FurtherLayers", "llama", R"({"block_count": 3, "nextn_predict_layers": 2})"},
    {"WideHeads", "llama", R"({"attention.key_length": 32})"},
    {"WholeHeadsRotated", "llama", R"({"rope.dimension_count": 16})"},
    {"Latents", "deepseek2", R"({"attention.key_length_mla": 48})"},
    {"ALongerPattern", "llama",
     R"({"attention.sliding_window": 8, "attention.sliding_window_pattern": [true, false, true]})"},
    {"TwoHeads", "gemma4",
     R"({"attention.key_length_swa": 8, "attention.head_count_kv": [2, 4],
         "attention.sliding_window_pattern": [true, false]})"},
    {"TheWidestMlps", "gemma4",
     R"({"feed_forward_length": [9223372036854775807, 1], "attention.key_length_swa": 16,
         "attention.sliding_window_pattern": [true, false]})"},
    {"KvHeadsOfEachLayer", "llama", R"({"attention.head_count_kv": [2, 2]})"},
    {"AConvolution", "lfm2", R"({"attention.head_count_kv": [2, 0]})"},
    {"StateHeads", "qwen35", R"({"ssm.inner_size": 64, "ssm.time_step_rank": 4})"},
};
INSTANTIATE_TEST_SUITE_P(Gguf, AllowedLayers, ::testing::ValuesIn(kAllowed), NameOf);

}  // namespace
}  // namespace pinion
