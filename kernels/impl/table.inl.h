#pragma once

// The table of a vector ISA. Include the ISA's vector first.

#include "kernels/impl/activation.inl.h"
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/attention_merge.inl.h"
#include "kernels/impl/convert.inl.h"
#include "kernels/impl/delta_chunk.inl.h"
#include "kernels/impl/gemm_panels.inl.h"
#include "kernels/impl/kv_write.inl.h"
#include "kernels/impl/recurrent.inl.h"
#include "kernels/impl/rowwise.inl.h"
#include "kernels/impl/state_space.inl.h"
#include "kernels/impl/state_space_chunk.inl.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {
namespace {

// of_bytes: the ISA's attention over a cache of bytes.
template <void (*of_bytes)(const AttentionArgs&)>
constexpr Table MakeTable(Isa isa) {
  return {
      .isa = isa,
      .gemm_f32 = FloatGemm<OperandF32, float>,
      .gemm_bf16 = FloatGemm<OperandBf16Widened, Bf16>,
      .gemm_f16 = FloatGemm<OperandF16, float>,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .rotary = Rotary,
      .rotary_pairs = RotaryPairs,
      .activate = Activate,
      .activate_gated = ActivateGated,
      .activate_rows = ActivateRows,
      .clamped_swiglu = ClampedSwiglu,
      .add = Add,
      .add_scaled = AddScaled,
      .scale = Scale,
      .weigh = Weigh,
      .softplus_decay = SoftplusDecay,
      .sum_squares = SumSquares,
      .soft_cap = SoftCap,
      .store = StoreRow,
      .convert = Convert,
      .log_sum_exp = LogSumExp,
      .exp_weights = ExpWeights,
      .sum_at_least = SumAtLeast,
      .max = MaxOver,
      .argmax = ArgMax,
      .delta_rule = DeltaRule,
      .delta_chunk = DeltaChunk,
      .state_space = StateSpace,
      .state_space_scores = StateSpaceScores,
      .state_space_chunk = StateSpaceChunk,
      .short_conv = ShortConv,
      .kv_write = KvWrite,
      .attention = Attention<of_bytes>,
      .attention_merge = AttentionMerge,
  };
}

}  // namespace
}  // namespace pinion::kernels::impl
