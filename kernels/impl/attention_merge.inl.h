#pragma once

// Combines partial softmaxes.

#include "kernels/impl/math.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// One row: dst = sum_p e^(max_p - max) out_p / (sum_p e^(max_p - max) sum_p + e^(sink - max)).
// Parts are added in their order, so the result does not depend on the threads that computed them.
void MergeRow(const AttentionMergeArgs& args, size_t row, size_t dst_begin) {
  const float sink = args.sinks == nullptr ? -kInfinity : args.sinks[row % args.group];
  float max = sink;
  for (size_t p = 0; p < args.parts_count; ++p) {
    const float part = args.parts[p].max[row];
    max = part > max ? part : max;
  }
  Vec total[kMaxValueDim / kLanes];
  for (size_t i = 0; i < args.value_dim; i += kLanes) total[i / kLanes] = Set(0);
  float sum = sink > -kInfinity ? Exp(sink - max) : 0;
  for (size_t p = 0; p < args.parts_count && max != -kInfinity; ++p) {
    const float below = args.parts[p].max[row] - max;
    const float weight = below == 0 ? 1 : Exp(below);  // the only part's is 0
    const float* out = args.parts[p].out + row * args.value_dim;
    sum += weight * args.parts[p].sum[row];
    for (size_t i = 0; i < args.value_dim; i += kLanes) {
      const Vec part = LoadUpTo(out + i, args.value_dim - i, Set(0));
      total[i / kLanes] = Fma(Set(weight), part, total[i / kLanes]);
    }
  }
  const Vec scale = Set(sum > 0 ? 1 / sum : 0);
  for (size_t i = 0; i < args.value_dim; i += kLanes) {
    Put(args.dst, args.dst_type, dst_begin + i, total[i / kLanes] * scale, args.value_dim - i);
  }
}

void AttentionMerge(const AttentionMergeArgs& args) {
  for (size_t token = 0; token < args.tokens; ++token) {
    for (size_t g = 0; g < args.group; ++g) {
      MergeRow(args, token * args.group + g, token * args.dst_stride + g * args.value_dim);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
