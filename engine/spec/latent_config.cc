// DeepSeek's latent attention, as the configs of its relatives spell it.

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {

Json WithRotatedHead(Json config) {
  const Json* rotated = config.Find("qk_rope_head_dim");
  if (rotated && rotated->is_int())
    config.Set("head_dim", std::max<int64_t>(8, rotated->integer()));
  return config;
}

Status ReadLatentAttention(const Json& config, DecoderSpec& spec) {
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

}  // namespace pinion
