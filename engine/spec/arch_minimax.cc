// MiniMax-M2: Mixtral with norms over all queries and all keys, a part of each head rotated, and
// DeepSeek's sigmoid router with a correction.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// Published configs state the kind of attention of each layer: 1 is the ordinary one.
Status CheckAttentionTypes(const Json& config) {
  const Json* types = config.Find("attn_type_list");
  if (!types || types->is_null()) return {};
  if (types->is_array())
    for (const Json& type : types->array())
      if (!type.is_number() || type.number() != 1)
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'attn_type_list' holds ", type.Dump().substr(0, 60), ", want 1 only"));
  return {};
}

Status ReadMiniMaxM2(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(CheckAttentionTypes(config));
  RopeSpec& rope = spec.ropes[0];
  PINION_ASSIGN(rope.dim, OptionalIn(config, "rotary_dim", 2, spec.head_dim, rope.dim));
  if (rope.dim % 2 != 0)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'rotary_dim' is ", rope.dim, ", want an even number"));
  spec.qk_norm = QkNorm::kWhole;
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  RouterSpec& router = spec.moe.router;
  PINION_ASSIGN(router.experts, RequireIn(config, "num_local_experts", 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  router.score = RouterScore::kSigmoid;
  router.normalise = true;
  PINION_ASSIGN(router.correction, Optional<bool>(config, "use_routing_bias", true));
  spec.moe.intermediate = spec.intermediate;
  const std::string layer = "model.layers.{}.", moe = layer + "block_sparse_moe.";
  spec.names.q_norm = layer + "self_attn.q_norm";
  spec.names.k_norm = layer + "self_attn.k_norm";
  spec.names.router = moe + "gate";
  if (router.correction) spec.names.router_correction = moe + "e_score_correction_bias";
  spec.names.expert_gate = moe + "experts.{}.w1";
  spec.names.expert_up = moe + "experts.{}.w3";
  spec.names.expert_down = moe + "experts.{}.w2";
  return {};
}

constexpr NeutralField kMiniMaxNeutral[] = {
    {"hidden_act", "silu"},      {"sliding_window", ""},        {"use_qk_norm", "true"},
    {"scoring_func", "sigmoid"}, {"qk_norm_type", "per_layer"}, {"shared_intermediate_size", "0"}};
constexpr std::string_view kMiniMaxReads[] = {"num_local_experts", "use_qk_norm"};

}  // namespace

extern const Architecture kMiniMaxM2;
const Architecture kMiniMaxM2 = {"MiniMaxM2ForCausalLM",
                                 "minimax_m2",
                                 "MiniMax-M2",
                                 kMiniMaxNeutral,
                                 ReadMiniMaxM2,
                                 kMiniMaxReads,
                                 R"({"num_key_value_heads": 8, "head_dim": 128,
        "rope_theta": 5000000.0, "max_position_embeddings": 196608, "num_experts_per_tok": 8})"};

}  // namespace pinion
