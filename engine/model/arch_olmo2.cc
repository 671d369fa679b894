// OLMo 2: Llama with norms after each part instead of before it, and norms over all queries and all
// keys at once.

#include "engine/model/architecture.h"

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

constexpr NeutralField kNeutral[] = {{"sliding_window", ""}, {"mlp_bias", "false"}};

}  // namespace

extern const Architecture kOlmo2;
const Architecture kOlmo2 = {"Olmo2ForCausalLM", "olmo2", kNeutral,
                             ReadOlmo2,          {},      R"({"rms_norm_eps": 1e-05})"};

}  // namespace pinion
