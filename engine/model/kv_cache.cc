#include "engine/model/kv_cache.h"

namespace pinion {

Result<KvCache> KvCache::Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks) {
  KvCache cache;
  cache.shape_ = CachedShape(spec);
  cache.dtype_ = dtype;
  cache.heads_ = shard.kv_heads.size();
  cache.blocks_ = blocks;
  cache.block_tokens_ = block_tokens;
  cache.key_stride_ = kernels::KvPlaneBlockBytes(dtype, block_tokens, cache.shape_.key_dim);
  if (!cache.shape_.latent)
    cache.value_stride_ = kernels::KvPlaneBlockBytes(dtype, block_tokens, cache.shape_.value_dim);
  PINION_ASSIGN(cache.storage_,
                Pages::Allocate(BytesPerBlock(spec, shard, dtype, block_tokens) * blocks));
  return cache;
}

void KvCache::Write(const kernels::Table& table, size_t layer, size_t head,
                    const int32_t* block_table, size_t position, const float* key,
                    const float* value) {
  const auto block = static_cast<size_t>(block_table[position / block_tokens_]);
  std::byte* keys = Plane(layer, head);
  std::byte* values =
      shape_.latent ? nullptr : keys + blocks_ * key_stride_ + block * value_stride_;
  table.kv_write({.keys = keys + block * key_stride_,
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
