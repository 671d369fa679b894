// GLM-4: Llama with norms before and after each part, gate and up projections in one tensor, and
// neighbouring pairs of the first half of each head rotated. GLM-4.5 to 4.7: DeepSeek's experts
// behind ordinary attention, which rotates halves; Flash (lite): behind latent attention.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadGlm4(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(spec.qkv_bias, Optional<bool>(config, "attention_bias", false));
  spec.ropes[0].interleaved = true;
  const std::string layer = "model.layers.{}.";
  spec.names.attention_post_norm = layer + "post_self_attn_layernorm";
  spec.names.mlp_post_norm = layer + "post_mlp_layernorm";
  spec.names.gate = spec.names.up = "";
  spec.names.gate_up = layer + "mlp.gate_up_proj";
  return {};
}

Status ReadGlm4Moe(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(spec.qkv_bias, Optional<bool>(config, "attention_bias", false));
  PINION_ASSIGN(const bool has_norm, Optional<bool>(config, "use_qk_norm", false));
  if (has_norm) {
    spec.qk_norm = QkNorm::kPerHead;
    spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
    spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  }
  return ReadGroupedExperts(config, "noaux_tc", "sigmoid", spec);
}

Status ReadGlm4MoeLite(const Json& given, DecoderSpec& spec) {
  const Json config = WithRotatedHead(given);
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadLatentAttention(config, spec));
  return ReadGroupedExperts(config, "noaux_tc", "sigmoid", spec);
}

constexpr NeutralField kGlm4Neutral[] = {{"sliding_window", ""}, {"mlp_bias", "false"}};

constexpr NeutralField kGlm4MoeNeutral[] = {
    {"hidden_act", "silu"}, {"sliding_window", ""}, {"mlp_bias", "false"}};
constexpr NeutralField kGlm4MoeLiteNeutral[] = {{"hidden_act", "silu"},
                                                {"sliding_window", ""},
                                                {"mlp_bias", "false"},
                                                {"attention_bias", "false"}};
constexpr std::string_view kGlm4MoeReads[] = {"n_routed_experts", "use_qk_norm"};
constexpr std::string_view kGlm4MoeLiteReads[] = {"kv_lora_rank", "n_routed_experts", "q_lora_rank",
                                                  "rope_interleave"};

}  // namespace

extern const Architecture kGlm4, kGlm4Moe, kGlm4MoeLite;
const Architecture kGlm4 = {"Glm4ForCausalLM",
                            "glm4",
                            "GLM-4 (0414)",
                            kGlm4Neutral,
                            ReadGlm4,
                            {},
                            R"({"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
        "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-07,
        "max_position_embeddings": 131072})"};

const Architecture kGlm4Moe = {
    "Glm4MoeForCausalLM",
    "glm4_moe",
    "GLM-4.5, 4.6, 4.7",
    kGlm4MoeNeutral,
    ReadGlm4Moe,
    kGlm4MoeReads,
    R"({"num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "norm_topk_prob": true})"};
const Architecture kGlm4MoeLite = {
    "Glm4MoeLiteForCausalLM",
    "glm4_moe_lite",
    "GLM-4.7-Flash",
    kGlm4MoeLiteNeutral,
    ReadGlm4MoeLite,
    kGlm4MoeLiteReads,
    R"({"rms_norm_eps": 1e-05, "max_position_embeddings": 202752, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.8})"};

}  // namespace pinion
