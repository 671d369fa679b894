// OLMo 2: Llama with norms after each part instead of before it, and norms over all queries and all
// keys at once. OLMo 3 adds windows, and stretches the rope of the other layers alone.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadOlmo2(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  spec.qk_norm = QkNorm::kWhole;
  const std::string layer = "model.layers.{}.";
  spec.names.attention_norm = spec.names.mlp_norm = "";
  spec.names.attention_post_norm = layer + "post_attention_layernorm";
  spec.names.mlp_post_norm = layer + "post_feedforward_layernorm";
  spec.names.q_norm = layer + "self_attn.q_norm";
  spec.names.k_norm = layer + "self_attn.k_norm";
  return {};
}

// transformers 4 stretches only the layers without window, too, but has one set of parameters.
Status ReadOlmo3(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadOlmo2(WithFullRope(config), spec));
  PINION_TRY(ReadWindows(config, spec, [](int layer) { return (layer + 1) % 4 != 0; }));
  return AddWindowRope(config, Json::Object{{"rope_theta", spec.ropes.at(0).theta}}, spec);
}

constexpr NeutralField kOlmo2Neutral[] = {{"sliding_window", ""}, {"mlp_bias", "false"}};
constexpr NeutralField kOlmo3Neutral[] = {{"mlp_bias", "false"}};
constexpr std::string_view kOlmo3Reads[] = {"layer_types"};

}  // namespace

extern const Architecture kOlmo2, kOlmo3;
const Architecture kOlmo2 = {
    "Olmo2ForCausalLM",          "olmo2", "OLMo 2", kOlmo2Neutral, ReadOlmo2, {},
    R"({"rms_norm_eps": 1e-05})"};
const Architecture kOlmo3 = {
    "Olmo3ForCausalLM",
    "olmo3",
    "OLMo 3",
    kOlmo3Neutral,
    ReadOlmo3,
    kOlmo3Reads,
    R"({"rms_norm_eps": 1e-05, "rope_theta": 500000.0, "sliding_window": 4096})"};

}  // namespace pinion
