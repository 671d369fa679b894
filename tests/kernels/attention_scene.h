#pragma once

// The input of attention's tests: a paged cache, queries, and a context that is cut into parts.

#include <algorithm>

#include "tests/kernels/kv_block.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {

struct Shape {
  size_t tokens, group, key_dim, value_dim, block_tokens;
  int64_t first_position, context_end;
  KvDtype dtype;
  int64_t window = kNoWindow;
  float soft_cap = 0;
  bool latent = false, sinks = false;
  unsigned shift = 1;    // of KvStrides
  bool shuffled = true;  // blocks
  int64_t first_seen = 0;
};

inline Shape Plain(size_t tokens, size_t group, size_t head_dim, size_t block_tokens,
                   int64_t first_position, int64_t context_end, KvDtype dtype) {
  return {tokens, group, head_dim, head_dim, block_tokens, first_position, context_end, dtype};
}

inline Shape Latent(size_t tokens, size_t group, size_t key_dim, size_t value_dim,
                    size_t block_tokens, int64_t first_position, KvDtype dtype) {
  Shape shape{tokens,       group,          key_dim,        value_dim,
              block_tokens, first_position, first_position, dtype};
  shape.context_end += static_cast<int64_t>(tokens);
  shape.latent = true;
  return shape;
}

inline std::ostream& operator<<(std::ostream& os, const Shape& s) {
  return os << s.tokens << " tokens, group " << s.group << ", dims " << s.key_dim << " "
            << s.value_dim << ", block " << s.block_tokens << ", first " << s.first_position
            << ", end " << s.context_end << ", " << Name(s.dtype) << ", window " << s.window
            << ", first seen " << s.first_seen << ", cap " << s.soft_cap
            << (s.latent ? ", latent" : "") << (s.sinks ? ", sinks" : "") << ", stretches of "
            << (1 << s.shift) << (s.shuffled ? "" : " in order");
}

// `gap` bytes between blocks, as if the other plane's lay there, and more between stretches.
inline KvStrides GappedStrides(const Shape& s, size_t dim, size_t gap) {
  const size_t block = KvPlaneBlockBytes(s.dtype, s.block_tokens, dim) + gap;
  return {block, (block << s.shift) + 3 * gap, s.shift};
}

// A cache filled through kv_write, mostly in shuffled blocks, and queries. Its planes have gaps
// between their blocks and stretches, as if other heads' lay there; they hold NaN.
struct Scene {
  Shape shape;
  size_t blocks, q_stride;
  KvStrides key_strides, value_strides;
  Guarded<std::byte> keys, values;
  std::vector<int32_t> table;
  std::vector<float> q, k, v, sinks;  // k: [context_end][key_dim], v: [context_end][value_dim]
  std::vector<const float*> q_rows;
  std::vector<int64_t> positions;
  std::vector<float> value_scales;  // [context_end]

  Scene(const Table& kernels, const Shape& s)
      : shape(s),
        blocks((static_cast<size_t>(s.context_end) + s.block_tokens - 1) / s.block_tokens),
        q_stride(s.group * s.key_dim + 24),
        key_strides(GappedStrides(s, s.key_dim, 64)),
        value_strides(GappedStrides(s, s.value_dim, 128)),
        keys(key_strides.At(blocks - 1) + key_strides.block - 64, 64),
        values(s.latent ? 64 : value_strides.At(blocks - 1) + value_strides.block - 128, 64),
        table(blocks),
        q(Normal(s.tokens * q_stride, 3)),
        k(Normal(static_cast<size_t>(s.context_end) * s.key_dim, 4)),
        v(Normal(static_cast<size_t>(s.context_end) * s.value_dim, 5)),
        sinks(Normal(s.group, 7)) {
    std::memset(keys.data(), 0xff, keys.size());
    std::memset(values.data(), 0xff, values.size());
    for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
    if (s.shuffled) std::shuffle(table.begin(), table.end(), std::mt19937(6));
    for (size_t p = 0; p < static_cast<size_t>(s.context_end); ++p) {
      if (s.latent) std::copy_n(&k[p * s.key_dim], s.value_dim, &v[p * s.value_dim]);
      Write(kernels, p, &k[p * s.key_dim], &v[p * s.value_dim]);
    }
    for (size_t p = 0; p < static_cast<size_t>(s.context_end); ++p) ReadBack(p);
    for (size_t t = 0; t < s.tokens; ++t) {
      q_rows.push_back(&q[t * q_stride]);
      positions.push_back(s.first_position + static_cast<int64_t>(t));
    }
  }

  void Write(const Table& kernels, size_t position, const float* key, const float* value) {
    const auto block = static_cast<size_t>(table[position / shape.block_tokens]);
    kernels.kv_write({keys.data() + key_strides.At(block),
                      shape.latent ? nullptr : values.data() + value_strides.At(block), key, value,
                      position % shape.block_tokens, shape.block_tokens, shape.key_dim,
                      shape.value_dim, shape.dtype});
  }

  void FillSlots(int64_t begin, int64_t end, float value) {
    const std::vector<float> filler(std::max(shape.key_dim, shape.value_dim), value);
    for (int64_t p = begin; p < end; ++p) {
      Write(TableFor(Isa::kScalar), static_cast<size_t>(p), filler.data(), filler.data());
    }
  }
  // Overwrites every slot of the last blocks from position `begin` on.
  void FillSlotsFrom(int64_t begin, float value) {
    FillSlots(begin, static_cast<int64_t>(blocks * shape.block_tokens), value);
  }

  size_t rows() const { return shape.tokens * shape.group; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.key_dim)); }

  AttentionArgs Args(int64_t begin, int64_t end, float* out, float* max, float* sum) const {
    const Shape& s = shape;
    return {.q = q_rows.data(),
            .positions = positions.data(),
            .tokens = s.tokens,
            .group = s.group,
            .key_dim = s.key_dim,
            .value_dim = s.value_dim,
            .window = s.window,
            .first_seen = s.first_seen,
            .context_begin = begin,
            .context_end = end,
            .keys = keys.data(),
            .values = s.latent ? nullptr : values.data(),
            .key_strides = key_strides,
            .value_strides = value_strides,
            .block_table = table.data(),
            .block_tokens = s.block_tokens,
            .dtype = s.dtype,
            .scale = scale(),
            .soft_cap = s.soft_cap,
            .out = out,
            .max = max,
            .sum = sum};
  }

  // A token as the cache holds it.
  void ReadBack(size_t position) {
    const auto block = static_cast<size_t>(table[position / shape.block_tokens]);
    const size_t slot = position % shape.block_tokens;
    const KvBlock key{keys.data() + key_strides.At(block), shape.dtype, shape.block_tokens,
                      shape.key_dim};
    const KvBlock value{values.data() + value_strides.At(block), shape.dtype, shape.block_tokens,
                        shape.value_dim};
    for (size_t d = 0; d < shape.key_dim; ++d) k[position * shape.key_dim + d] = key.Key(slot, d);
    value_scales.push_back(IsScaled(shape.dtype) ? (shape.latent ? key : value).Scale(slot) : 1);
    for (size_t d = 0; d < shape.value_dim; ++d)
      v[position * shape.value_dim + d] = shape.latent ? key.Key(slot, d) : value.Value(slot, d);
  }
};

// Splits the context at `cuts` (multiples of block_tokens), runs the parts and merges them.
inline std::vector<float> RunParts(const Table& kernels, const Scene& scene,
                                   std::vector<int64_t> cuts, Dtype dst_type = Dtype::kF32) {
  const Shape& s = scene.shape;
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(s.context_end);
  const size_t count = cuts.size() - 1, rows = scene.rows();
  Guarded<float> out(count * rows * s.value_dim, 64), max(count * rows), sum(count * rows);
  std::vector<AttentionPart> parts;
  for (size_t p = 0; p < count; ++p) {
    const AttentionArgs args = scene.Args(cuts[p], cuts[p + 1], &out[p * rows * s.value_dim],
                                          &max[p * rows], &sum[p * rows]);
    kernels.attention(args);
    parts.push_back({args.out, args.max, args.sum});
  }
  const size_t stride = s.group * s.value_dim + 8, width = s.group * s.value_dim;
  Guarded<std::byte> dst(((s.tokens - 1) * stride + width) * SizeOf(dst_type), 8);
  kernels.attention_merge({parts.data(), count, s.tokens, s.group, s.value_dim,
                           s.sinks ? scene.sinks.data() : nullptr, dst.data(), stride, dst_type});
  std::vector<float> result(rows * s.value_dim);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = Get(dst.data(), dst_type, i / width * stride + i % width);
  }
  return result;
}

}  // namespace pinion::kernels::testing
