// Mistral: Llama, with a window in every layer if the config has one.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadMistral(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  return ReadWindows(config, spec, [](int) { return true; });
}

constexpr NeutralField kMistralNeutral[] = {{"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kMistralReads[] = {"layer_types"};

}  // namespace

extern const Architecture kMistral;
const Architecture kMistral = {
    "MistralForCausalLM",
    "mistral",
    "Mistral",
    kMistralNeutral,
    ReadMistral,
    kMistralReads,
    R"({"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096})",
    "Mistral3ForConditionalGeneration"};

}  // namespace pinion
