#include "engine/model/kv_cache.h"

namespace pinion {
namespace {

size_t BlockBytes(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                  size_t block_tokens) {
  return kernels::KvBlockBytes(dtype, block_tokens, shard.kv_heads.size(),
                               static_cast<size_t>(spec.head_dim));
}

}  // namespace

Result<KvCache> KvCache::Allocate(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                                  size_t block_tokens, size_t blocks) {
  KvCache cache;
  cache.dtype_ = dtype;
  cache.block_tokens_ = block_tokens;
  cache.block_bytes_ = BlockBytes(spec, shard, dtype, block_tokens);
  cache.layer_bytes_ = cache.block_bytes_ * blocks;
  PINION_ASSIGN(cache.storage_,
                Pages::Allocate(cache.layer_bytes_ * static_cast<size_t>(spec.layers)));
  return cache;
}

uint64_t KvCache::BytesPerBlock(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                                size_t block_tokens) {
  return BlockBytes(spec, shard, dtype, block_tokens) * static_cast<uint64_t>(spec.layers);
}

}  // namespace pinion
