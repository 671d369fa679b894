#include "engine/model/kv_cache.h"

#include <algorithm>

namespace pinion {
namespace {

// What is read in a row at least, for where one stretch ends the CPU's prefetchers start anew:
// 32 heads of 64 are decoded at 0.96 of the speed of one long stretch each in 32 KiB, 0.99 in 64,
// 32 heads of 128 at 0.95 and 1.0 (Zen 4, two threads).
constexpr size_t kLeastStretchBytes = size_t{64} << 10;

// Up to this width a block's values lie right behind its keys, because that is how they are read
// (StripTokens in kernels/impl/attention_strip.inl.h): 4 query heads of 64 decode 6-15 % faster so.
// Wider heads take the keys of several blocks before their values, and lose 5-10 %.
constexpr size_t kAlternatingDim = 64;

// The logarithm of a span's blocks. layer_block, head_block: bytes of a block of all heads, and
// what a head reads of it in a row. Not more than `blocks` need: a small cache would be mostly
// rest.
unsigned SpanShift(size_t layer_block, size_t head_block, size_t blocks) {
  unsigned shift = 0;
  while (size_t{1} << shift < blocks && (layer_block << (shift + 1) <= kHugePageBytes ||
                                         head_block << shift < kLeastStretchBytes)) {
    ++shift;
  }
  return shift;
}

}  // namespace

Result<KvCache> KvCache::Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks) {
  KvCache cache;
  const KvShape shape = cache.shape_ = CachedShape(spec);
  cache.dtype_ = dtype;
  cache.block_tokens_ = block_tokens;
  cache.size_bytes_ = BytesPerBlock(spec, shard, dtype, block_tokens) * blocks;

  const size_t keys = kernels::KvPlaneBlockBytes(dtype, block_tokens, shape.key_dim);
  const size_t both = shape.BlockBytes(dtype, block_tokens), values = both - keys;
  const bool alternate = std::max(shape.key_dim, shape.value_dim) <= kAlternatingDim;
  const size_t layer_block = both * shard.kv_heads.size();
  const unsigned shift = SpanShift(layer_block, alternate ? both : keys, blocks);
  const size_t span = layer_block << shift;
  cache.key_strides_ = {alternate ? both : keys, span, shift};
  cache.value_strides_ = {alternate ? both : values, span, shift};
  cache.values_offset_ = alternate ? keys : keys << shift;
  cache.head_bytes_ = both << shift;
  cache.layer_bytes_ = ((blocks + cache.key_strides_.blocks() - 1) >> shift) * span;
  PINION_ASSIGN(cache.storage_,
                Pages::Allocate(cache.layer_bytes_ * static_cast<size_t>(spec.layers)));
  return cache;
}

void KvCache::Write(const kernels::Table& table, size_t layer, size_t head,
                    const int32_t* block_table, size_t position, const float* key,
                    const float* value) {
  const auto block = static_cast<size_t>(block_table[position / block_tokens_]);
  std::byte* const first = Head(layer, head);
  std::byte* const values =
      shape_.latent ? nullptr : first + values_offset_ + value_strides_.At(block);
  table.kv_write({.keys = first + key_strides_.At(block),
                  .values = values,
                  .k = key,
                  .v = value,
                  .slot = position % block_tokens_,
                  .block_tokens = block_tokens_,
                  .key_dim = shape_.key_dim,
                  .value_dim = shape_.value_dim,
                  .dtype = dtype_});
}

uint64_t KvCache::BytesPerBlock(const DecoderSpec& spec, const Shard& shard, kernels::KvDtype dtype,
                                size_t block_tokens) {
  return CachedShape(spec).BlockBytes(dtype, block_tokens) * shard.kv_heads.size() *
         static_cast<uint64_t>(spec.layers);
}

}  // namespace pinion
