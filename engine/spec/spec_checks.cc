#include "engine/spec/spec_checks.h"

#include <utility>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"

namespace pinion {
namespace {

Status CheckHeads(const DecoderSpec& spec) {
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    const auto [heads, kv_heads, head_dim] = LayerHeads(spec, layer);
    if (head_dim < 8 || head_dim > kMaxHeadDim || head_dim % 8 != 0)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("heads are ", head_dim, " wide ('head_dim', else 'hidden_size' over ",
                         "'num_attention_heads'), want a multiple of 8 from 8 to ", kMaxHeadDim));
    if (heads % kv_heads != 0)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'num_attention_heads' is ", heads, ", want a multiple of the ", kv_heads,
                         " key-value heads of layer ", layer,
                         spec.layer_specs[layer].kv_heads == 0 ? " ('num_key_value_heads')" : ""));
  }
  return {};
}

// A latent is as wide as the kernels' scratch allows; published ones have 512 + 64.
Status CheckLatent(const DecoderSpec& spec) {
  const KvShape shape = WidestCachedShape(spec);
  if (shape.value_dim % 8 == 0 && shape.value_dim <= kernels::kMaxValueDim &&
      shape.key_dim % 8 == 0 && shape.key_dim <= kernels::kMaxKeyDim)
    return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat("'kv_lora_rank' is ", spec.latent.kv_rank, " and 'qk_rope_head_dim' ",
                     spec.latent.rope_dim, ", want multiples of 8, the first at most ",
                     kernels::kMaxValueDim, ", both together at most ", kernels::kMaxKeyDim));
}

// State heads are as wide as the forward pass's scratch allows; published ones are 128.
Status CheckDelta(const DecoderSpec& spec) {
  const DeltaSpec& delta = spec.delta;
  if (delta.value_heads % delta.key_heads != 0)
    return Fail(ErrorCode::kCorrupt, StrCat("there are ", delta.value_heads,
                                            " value heads of linear attention, want a "
                                            "multiple of the ",
                                            delta.key_heads, " key heads"));
  for (const int dim : {delta.key_dim, delta.value_dim})
    if (dim % 8 != 0)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("heads of linear attention are ", dim,
                         " wide, want a multiple of 8 from 8 to ", kMaxStateDim));
  return {};
}

// As CheckDelta; published heads are 64 wide and have states of 128 to 256.
Status CheckMamba(const DecoderSpec& spec) {
  const MambaSpec& mamba = spec.mamba;
  for (const auto& [runs, of] : {std::pair{mamba.groups, "groups"}, {mamba.norm_runs, "norms"}})
    if (runs > 0 && mamba.heads % runs != 0)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("there are ", mamba.heads, " Mamba heads, want a multiple of the ", runs,
                         " ", of));
  for (const int dim : {mamba.head_dim, mamba.state_dim})
    if (dim % 8 != 0)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("Mamba heads or their states are ", dim,
                         " wide, want a multiple of 8 from 8 to ", kMaxStateDim));
  return {};
}

// The KV cache, and with it the scheduler, counts the tokens of layers that attend.
Status CheckMixers(const DecoderSpec& spec) {
  if (KvLayers(spec) > 0) return {};
  return Fail(ErrorCode::kUnsupported,
              "no layer has full attention, want at least one beside the recurrent ones");
}

// A gate's rows lie among its query's, and packed are queries, whole keys, whole values, gates, in
// this order and without biases (LoadGatedQkv in engine/weights): the gates would be sought where
// others are.
Status CheckGates(const DecoderSpec& spec) {
  const auto refuse = [](const std::string& why) {
    return Fail(ErrorCode::kUnsupported,
                StrCat("attention heads have gates, and ", why,
                       ", which Pinion does not compute together; want keys and values of their "
                       "own in every layer of gated attention, without biases"));
  };
  if (spec.latent.kv_rank > 0) return refuse("keys and values come from latents");
  if (!spec.names.qkv.empty()) return refuse("their queries, keys and values are one tensor");
  if (spec.qkv_bias) return refuse("their projections have biases");
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const LayerSpec& layer = spec.layer_specs[i];
    if (!Attends(layer.mixer)) continue;
    if (layer.keys_as_values) return refuse(StrCat("keys of layer ", i, " are its values, too"));
    if (!Caches(layer))
      return refuse(StrCat("layer ", i, " sees keys and values of layer ", layer.kv_from));
  }
  return {};
}

}  // namespace

Status CheckShape(const DecoderSpec& spec) {
  PINION_TRY(spec.latent.kv_rank > 0 ? CheckLatent(spec) : CheckHeads(spec));
  if (spec.delta.key_heads > 0) PINION_TRY(CheckDelta(spec));
  if (spec.mamba.heads > 0) PINION_TRY(CheckMamba(spec));
  PINION_TRY(CheckMixers(spec));
  if (spec.attention_gate) PINION_TRY(CheckGates(spec));
  if (spec.moe.router.experts > 0) PINION_TRY(CheckRouter(spec.moe.router));
  if (int64_t{spec.layers} * spec.moe.router.experts > kMaxExpertsInAll)
    return Fail(ErrorCode::kUnsupported,
                StrCat("there are ", spec.layers, " layers of ", spec.moe.router.experts,
                       " experts, want at most ", kMaxExpertsInAll, " experts in all"));
  if (!(spec.norm_eps >= 0 && spec.norm_eps < 1))
    return Fail(ErrorCode::kCorrupt,
                StrCat("the norm's epsilon is ", spec.norm_eps, ", want 0 to below 1"));
  return {};
}

}  // namespace pinion
