#pragma once

// Combining partial softmaxes.

#include "kernels/impl/math.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// One row: dst = sum_p e^(max_p - max) out_p / sum_p e^(max_p - max) sum_p.
void MergeRow(const AttentionMergeArgs& args, size_t row, size_t dst_begin) {
  float max = -kInfinity;
  for (size_t p = 0; p < args.parts; ++p) {
    const float part = args.max[p * args.row_part_stride + row];
    max = part > max ? part : max;
  }
  Vec total[kMaxHeadDim / kLanes];
  for (size_t i = 0; i < args.head_dim; i += kLanes) total[i / kLanes] = Set(0);
  float sum = 0;
  for (size_t p = 0; p < args.parts && max != -kInfinity; ++p) {
    const float weight = Exp(args.max[p * args.row_part_stride + row] - max);
    const float* out = args.out + p * args.out_part_stride + row * args.head_dim;
    sum += weight * args.sum[p * args.row_part_stride + row];
    for (size_t i = 0; i < args.head_dim; i += kLanes) {
      const Vec part = LoadUpTo(out + i, args.head_dim - i, Set(0));
      total[i / kLanes] = Fma(Set(weight), part, total[i / kLanes]);
    }
  }
  const Vec scale = Set(sum > 0 ? 1 / sum : 0);
  for (size_t i = 0; i < args.head_dim; i += kLanes) {
    Put(args.dst, args.dst_type, dst_begin + i, total[i / kLanes] * scale, args.head_dim - i);
  }
}

void AttentionMerge(const AttentionMergeArgs& args) {
  for (size_t token = 0; token < args.tokens; ++token) {
    for (size_t g = 0; g < args.group; ++g) {
      MergeRow(args, token * args.group + g, token * args.dst_stride + g * args.head_dim);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
