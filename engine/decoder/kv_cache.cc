#include "engine/decoder/kv_cache.h"

#include <algorithm>

#include "engine/decoder/kv_layout.h"

namespace pinion {

Result<KvCache> KvCache::Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks,
                                  kernels::Dtype weights, const MemoryPolicy& memory) {
  const KvLayout layout = KvLayout::Of(spec, shard, dtype, block_tokens, weights);
  KvCache cache;
  cache.dtype_ = dtype;
  cache.block_tokens_ = block_tokens;
  cache.size_bytes_ = layout.block_bytes() * blocks;
  cache.paged_ = layout.page > 0;
  size_t offset = 0;
  for (const LayerKvLayout& of : layout.layers) {
    const size_t keys = of.keys, values = of.values, both = keys + values;
    const bool alternate = of.alternate();
    const unsigned shift = cache.paged_ ? 0 : of.SpanShift(blocks);
    const size_t span = cache.paged_ ? layout.page : of.SpanBytes(blocks);
    Layer layer;
    layer.shape = of.shape;
    layer.keys = keys;
    layer.values = values;
    layer.index = of.index;
    layer.heads = of.heads;
    layer.key_strides = {alternate ? both : keys, span, shift};
    layer.value_strides = {alternate ? both : values, span, shift};
    layer.values_offset = alternate ? keys : keys << shift;
    layer.index_strides = {of.index, span, shift};
    layer.index_offset = (both * of.heads) << shift;
    layer.head_bytes = both << shift;
    layer.bytes = cache.paged_ ? layout.page * blocks : of.Bytes(blocks);
    layer.offset = cache.paged_ ? of.in_page : offset;
    offset += layer.bytes;
    cache.layers_.push_back(layer);
  }
  PINION_ASSIGN(cache.storage_, Pages::Allocate(layout.StorageBytes(blocks), memory));
  return cache;
}

size_t KvCache::span_blocks() const {
  size_t most = 1;
  for (const Layer& layer : layers_) most = std::max(most, layer.key_strides.blocks());
  return most;
}

void KvCache::Touch(size_t part, size_t first, size_t last) {
  const Layer& of = layers_[part];
  if (first >= last || of.bytes == 0) return;
  const auto [stride, span, shift] = of.key_strides;
  const size_t begin = (first >> shift) * span, end = (((last - 1) >> shift) + 1) * span;
  TouchPages(storage_.data() + (paged_ ? 0 : of.offset) + begin, end - begin);
}

std::vector<std::span<std::byte>> KvCache::PiecesOf(size_t layer, int32_t block) const {
  const Layer& of = layers_[layer];
  const auto number = static_cast<size_t>(block);
  std::vector<std::span<std::byte>> pieces;
  for (size_t head = 0; head < of.heads; ++head) {
    std::byte* const first = Head(layer, head);
    pieces.emplace_back(first + of.key_strides.At(number), of.keys);
    if (of.values > 0)
      pieces.emplace_back(first + of.values_offset + of.value_strides.At(number), of.values);
  }
  if (of.index > 0) pieces.emplace_back(index_keys(layer, block), of.index);
  return pieces;
}

void KvCache::Write(const kernels::Table& table, size_t layer, size_t head,
                    const int32_t* block_table, const Tokens& tokens) {
  const Layer& of = layers_[layer];
  const auto block = static_cast<size_t>(block_table[tokens.position / block_tokens_]);
  std::byte* const first = Head(layer, head);
  std::byte* const values =
      of.shape.latent ? nullptr : first + of.values_offset + of.value_strides.At(block);
  table.kv_write({.keys = first + of.key_strides.At(block),
                  .values = values,
                  .k = tokens.keys,
                  .v = tokens.values,
                  .slot = tokens.position % block_tokens_,
                  .block_tokens = block_tokens_,
                  .key_dim = of.shape.key_dim,
                  .value_dim = of.shape.value_dim,
                  .dtype = dtype_,
                  .tokens = tokens.count,
                  .stride = tokens.stride});
}

}  // namespace pinion
