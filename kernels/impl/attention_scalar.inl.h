#pragma once

// The reference of attention: one cached token after the other, in the order of positions.

#include <cmath>

#include "kernels/impl/kv.inl.h"
#include "kernels/impl/put.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// One row's running softmax (Milakov & Gimelshein, arXiv:1805.02867, algorithm 3).
struct Running {
  float* out;
  float max = kMinusInfinity, sum = 0;
};

// The scale of the token in `slot` of a block; 1 if the type has none.
template <typename Kv>
float ScaleOf(const AttentionArgs& args, const Kv* block, size_t dim, size_t slot) {
  if (!kIsCode<Kv>) return 1;
  return Widen(ScalesOf(reinterpret_cast<const std::byte*>(block), args.block_tokens, dim)[slot]);
}

template <typename Kv>
void AttendToken(const AttentionArgs& args, const float* q, int64_t position, Running& row) {
  const size_t slot = static_cast<size_t>(position) % args.block_tokens;
  const auto block =
      static_cast<size_t>(args.block_table[static_cast<size_t>(position) / args.block_tokens]);
  const Kv* keys = reinterpret_cast<const Kv*>(args.keys + args.key_strides.At(block));
  const Kv* values = args.values == nullptr
                         ? nullptr
                         : reinterpret_cast<const Kv*>(args.values + args.value_strides.At(block));
  const float key_scale = ScaleOf<Kv>(args, keys, args.key_dim, slot);
  const float value_scale =
      values == nullptr ? key_scale : ScaleOf<Kv>(args, values, args.value_dim, slot);
  float score = 0;
  for (size_t d = 0; d < args.key_dim; ++d) {
    score += q[d] * Widen(keys[KeyIndex<Kv>(slot, d, args.block_tokens)]);
  }
  score *= key_scale * args.scale;
  if (args.soft_cap > 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
  const float max = score > row.max ? score : row.max;
  const float keep = std::exp(row.max - max), weight = std::exp(score - max);
  for (size_t d = 0; d < args.value_dim; ++d) {
    const Kv value = values == nullptr ? keys[KeyIndex<Kv>(slot, d, args.block_tokens)]
                                       : values[ValueIndex<Kv>(slot, d, args.value_dim)];
    row.out[d] = row.out[d] * keep + weight * value_scale * Widen(value);
  }
  row.sum = row.sum * keep + weight;
  row.max = max;
}

template <typename Kv>
void AttentionAs(const AttentionArgs& args) {
  for (size_t r = 0; r < args.tokens * args.group; ++r) {
    const int64_t position = args.positions[r / args.group];
    const int64_t windowed = position - args.window + 1;
    const int64_t first = windowed > args.first_seen ? windowed : args.first_seen;
    Running row{args.out + r * args.value_dim};
    for (size_t d = 0; d < args.value_dim; ++d) row.out[d] = 0;
    const float* q = args.q[r / args.group] + r % args.group * args.key_dim;
    const int64_t begin = first > args.context_begin ? first : args.context_begin;
    const int64_t end = position < args.context_end ? position + 1 : args.context_end;
    for (int64_t p = begin; p < end; ++p) AttendToken<Kv>(args, q, p, row);
    args.max[r] = row.max;
    args.sum[r] = row.sum;
  }
}

void Attention(const AttentionArgs& args) {
  switch (args.dtype) {
    case KvDtype::kF32:
      return AttentionAs<float>(args);
    case KvDtype::kBf16:
      return AttentionAs<Bf16>(args);
    case KvDtype::kF16:
      return AttentionAs<F16>(args);
    case KvDtype::kI8:
      return AttentionAs<KvI8>(args);
    case KvDtype::kE5m2:
      return AttentionAs<KvE5m2>(args);
    case KvDtype::kE4m3:
      return AttentionAs<KvE4m3>(args);
  }
}

// One row: dst = sum_p e^(max_p - max) out_p / (sum_p e^(max_p - max) sum_p + e^(sink - max)).
void MergeRow(const AttentionMergeArgs& args, size_t row, size_t dst_begin) {
  float max = args.sinks == nullptr ? kMinusInfinity : args.sinks[row % args.group];
  for (size_t p = 0; p < args.parts_count; ++p) {
    max = args.parts[p].max[row] > max ? args.parts[p].max[row] : max;
  }
  const bool sees_nothing = max == kMinusInfinity;
  float sum = args.sinks == nullptr ? 0 : std::exp(args.sinks[row % args.group] - max);
  for (size_t p = 0; p < args.parts_count && !sees_nothing; ++p) {
    sum += std::exp(args.parts[p].max[row] - max) * args.parts[p].sum[row];
  }
  for (size_t d = 0; d < args.value_dim; ++d) {
    float out = 0;
    for (size_t p = 0; p < args.parts_count && !sees_nothing; ++p) {
      const float weight = std::exp(args.parts[p].max[row] - max);
      out += weight * args.parts[p].out[row * args.value_dim + d];
    }
    Put(args.dst, args.dst_type, dst_begin + d, sees_nothing ? 0 : out / sum);
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
