// DeepSeek-V2 and V3 (R1 declares itself V3): latent attention; the first layers are dense, the
// others have experts beside a shared MLP. A token chooses from its best groups of experts only.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/model/architecture.h"

namespace pinion {
namespace {

// "greedy" chooses among all experts. The other methods choose within the best groups only,
// "noaux_tc" by scores to which a learned correction is added.
Status ReadMethod(const Json& config, const char* usual, RouterSpec& router) {
  PINION_ASSIGN(const std::string method, Optional<std::string>(config, "topk_method", usual));
  if (method == "greedy") return {};
  if (method != "group_limited_greedy" && method != "noaux_tc")
    return Fail(
        ErrorCode::kUnsupported,
        StrCat("'topk_method' is '", method, "', want greedy, group_limited_greedy or noaux_tc"));
  PINION_ASSIGN(router.groups, OptionalIn(config, "n_group", 1, kMaxExperts, 1));
  PINION_ASSIGN(router.top_groups, OptionalIn(config, "topk_group", 1, kMaxExperts, 1));
  router.correction = method == "noaux_tc";
  router.group_score = router.correction ? GroupScore::kTwoBest : GroupScore::kBest;
  return {};
}

Status ReadScore(const Json& config, const char* usual, RouterSpec& router) {
  PINION_ASSIGN(const std::string score, Optional<std::string>(config, "scoring_func", usual));
  if (score != "softmax" && score != "sigmoid")
    return Fail(ErrorCode::kUnsupported,
                StrCat("'scoring_func' is '", score, "', want softmax or sigmoid"));
  router.score = score == "softmax" ? RouterScore::kSoftmax : RouterScore::kSigmoid;
  return {};
}

Status ReadRouter(const Json& config, RouterSpec& router) {
  PINION_ASSIGN(router.experts, RequireIn(config, "n_routed_experts", 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  PINION_ASSIGN(router.normalise, Optional<bool>(config, "norm_topk_prob", false));
  PINION_ASSIGN(const double scale, Optional<double>(config, "routed_scaling_factor", 1.0));
  router.scale = static_cast<float>(scale);
  return {};
}

Status ReadExperts(const Json& config, DecoderSpec& spec) {
  MoeSpec& moe = spec.moe;
  PINION_ASSIGN(moe.intermediate, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  const int64_t most = kMaxIntermediate / moe.intermediate;
  PINION_ASSIGN(const int shared, OptionalIn(config, "n_shared_experts", 0, most, 0));
  moe.shared_intermediate = shared * moe.intermediate;
  PINION_ASSIGN(const int dense, OptionalIn(config, "first_k_dense_replace", 0, kMaxLayers, 0));
  PINION_ASSIGN(const int step, OptionalIn(config, "moe_layer_freq", 1, kMaxLayers, 1));
  for (int i = dense; i < spec.layers; ++i)
    if (i % step == 0) spec.layer_specs[static_cast<size_t>(i)].mlp = MlpKind::kExperts;
  const std::string mlp = "model.layers.{}.mlp.";
  spec.names.router = mlp + "gate";
  if (moe.router.correction) spec.names.router_correction = mlp + "gate.e_score_correction_bias";
  spec.names.expert_gate = mlp + "experts.{}.gate_proj";
  spec.names.expert_up = mlp + "experts.{}.up_proj";
  spec.names.expert_down = mlp + "experts.{}.down_proj";
  if (shared == 0) return {};
  spec.names.shared_gate = mlp + "shared_experts.gate_proj";
  spec.names.shared_up = mlp + "shared_experts.up_proj";
  spec.names.shared_down = mlp + "shared_experts.down_proj";
  return {};
}

// 'head_dim' in these configs counts the rotary part only, so it is ignored.
Status ReadLatent(const Json& config, DecoderSpec& spec) {
  LatentSpec& latent = spec.latent;
  PINION_ASSIGN(latent.kv_rank, RequireIn(config, "kv_lora_rank", 8, kMaxHidden));
  PINION_ASSIGN(latent.q_rank, OptionalIn(config, "q_lora_rank", 0, kMaxHidden, 0));
  PINION_ASSIGN(latent.nope_dim, RequireIn(config, "qk_nope_head_dim", 1, kMaxHeadDim));
  PINION_ASSIGN(latent.rope_dim, RequireIn(config, "qk_rope_head_dim", 2, kMaxHeadDim));
  PINION_ASSIGN(latent.value_dim, RequireIn(config, "v_head_dim", 1, kMaxHeadDim));
  if (latent.rope_dim % 2 != 0)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'qk_rope_head_dim' is ", latent.rope_dim, ", want an even number"));
  // The cache holds a single head per token, which all queries share.
  spec.kv_heads = 1;
  spec.head_dim = latent.kv_rank + latent.rope_dim;
  RopeSpec& rope = spec.ropes.at(0);
  rope.dim = latent.rope_dim;
  PINION_ASSIGN(rope.interleaved, Optional<bool>(config, "rope_interleave", true));
  spec.attention_scale =
      static_cast<float>(rope.product_scale / std::sqrt(latent.nope_dim + latent.rope_dim));
  TensorNames& names = spec.names;
  const std::string attention = "model.layers.{}.self_attn.";
  names.k = names.v = "";
  names.kv_a = attention + "kv_a_proj_with_mqa";
  names.kv_a_norm = attention + "kv_a_layernorm";
  names.kv_b = attention + "kv_b_proj";
  if (latent.q_rank == 0) return {};
  names.q = "";
  names.q_a = attention + "q_a_proj";
  names.q_a_norm = attention + "q_a_layernorm";
  names.q_b = attention + "q_b_proj";
  return {};
}

Status Read(const Json& config, const char* method, const char* score, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadLatent(config, spec));
  PINION_TRY(ReadRouter(config, spec.moe.router));
  PINION_TRY(ReadMethod(config, method, spec.moe.router));
  PINION_TRY(ReadScore(config, score, spec.moe.router));
  return ReadExperts(config, spec);
}

Status ReadV2(const Json& config, DecoderSpec& spec) {
  return Read(config, "greedy", "softmax", spec);
}
Status ReadV3(const Json& config, DecoderSpec& spec) {
  return Read(config, "noaux_tc", "sigmoid", spec);
}

constexpr NeutralField kNeutral[] = {
    {"hidden_act", "silu"}, {"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kReads[] = {"kv_lora_rank", "n_routed_experts", "q_lora_rank",
                                       "rope_interleave"};

}  // namespace

extern const Architecture kDeepseekV2, kDeepseekV3;
const Architecture kDeepseekV2 = {"DeepseekV2ForCausalLM", "deepseek_v2", kNeutral, ReadV2, kReads};
const Architecture kDeepseekV3 = {"DeepseekV3ForCausalLM", "deepseek_v3", kNeutral, ReadV3, kReads};

}  // namespace pinion
