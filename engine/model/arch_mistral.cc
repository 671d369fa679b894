// Mistral: Llama, with a window in every layer if the config has one.

#include "engine/model/architecture.h"

namespace pinion {
namespace {

Status ReadMistral(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  return ReadWindows(config, spec, [](int) { return true; });
}

constexpr NeutralField kNeutral[] = {{"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kReads[] = {"layer_types"};

}  // namespace

extern const Architecture kMistral;
const Architecture kMistral = {
    "MistralForCausalLM",
    "mistral",
    kNeutral,
    ReadMistral,
    kReads,
    R"({"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096})"};

}  // namespace pinion
