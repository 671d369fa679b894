#include "engine/decoder/kv_cache.h"

#include "engine/decoder/kv_layout.h"

namespace pinion {

Result<KvCache> KvCache::Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks,
                                  kernels::Dtype weights) {
  const KvLayout layout = KvLayout::Of(spec, shard, dtype, block_tokens, weights);
  const size_t keys = layout.keys, values = layout.values, both = keys + values;
  const bool alternate = layout.alternate();
  const unsigned shift = layout.SpanShift(blocks);
  const size_t span = layout.layer_block_bytes() << shift;
  KvCache cache;
  cache.shape_ = layout.shape;
  cache.dtype_ = dtype;
  cache.block_tokens_ = block_tokens;
  cache.size_bytes_ = layout.block_bytes() * blocks;
  cache.key_strides_ = {alternate ? both : keys, span, shift};
  cache.value_strides_ = {alternate ? both : values, span, shift};
  cache.values_offset_ = alternate ? keys : keys << shift;
  cache.index_strides_ = {layout.index, span, shift};
  cache.index_offset_ = (both * layout.heads) << shift;
  cache.head_bytes_ = both << shift;
  cache.layer_bytes_ = layout.LayerBytes(blocks);
  PINION_ASSIGN(cache.storage_, Pages::Allocate(layout.StorageBytes(blocks)));
  return cache;
}

void KvCache::Touch(size_t layer, size_t first, size_t last) {
  if (first >= last || layer_bytes_ == 0) return;
  const auto [stride, span, shift] = key_strides_;
  const size_t begin = (first >> shift) * span, end = (((last - 1) >> shift) + 1) * span;
  TouchPages(storage_.data() + layer * layer_bytes_ + begin, end - begin);
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

}  // namespace pinion
