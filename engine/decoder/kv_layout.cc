#include "engine/decoder/kv_layout.h"

#include <algorithm>

#include "engine/host/memory.h"
#include "engine/spec/kv_tables.h"

namespace pinion {
namespace {

// The least number of bytes that lie in one stretch, because the CPU's prefetchers start over after
// each: in stretches of 32 KiB, 32 heads of 64 are decoded at 0.96 of the speed of one long stretch
// each, in 64 KiB at 0.99; 32 heads of 128 at 0.95 and 1.0 (Zen 4, two threads).
constexpr size_t kLeastStretchBytes = size_t{64} << 10;

// Up to this width a block's values lie right behind its keys, because they are read in that order
// (StripTokens in kernels/impl/attention_strip.inl.h): 4 query heads of 64 decode 6-15 % faster. Of
// wider heads the kernel reads the keys of several blocks before their values, and this layout
// would cost 5-10 %.
constexpr size_t kAlternatingDim = 64;

}  // namespace

bool LayerKvLayout::alternate() const {
  return std::max(shape.key_dim, shape.value_dim) <= kAlternatingDim;
}

// Never more than `blocks`: most of a small cache would otherwise be unused.
unsigned LayerKvLayout::SpanShift(size_t blocks) const {
  const size_t layer_block = block_bytes(), stretch = alternate() ? keys + values : keys;
  unsigned shift = 0;
  while (size_t{1} << shift < blocks &&
         (layer_block << (shift + 1) <= kHugePageBytes || stretch << shift < kLeastStretchBytes)) {
    ++shift;
  }
  return shift;
}

uint64_t LayerKvLayout::Bytes(size_t blocks) const {
  const unsigned shift = SpanShift(blocks);
  const size_t spans = (blocks + (size_t{1} << shift) - 1) >> shift;
  return uint64_t{spans} * SpanBytes(blocks);
}

KvLayout KvLayout::Of(const DecoderSpec& spec, const Shard& shard, kernels::KvDtype dtype,
                      size_t block_tokens, kernels::Dtype weights) {
  KvLayout layout;
  layout.layers.resize(KvLayers(spec));
  const bool pages = KvTables(spec) > 1 && !ShareCacheLayers(spec);
  std::vector<size_t> taken(KvTables(spec));  // of a page
  for (size_t index = 0; index < spec.layer_specs.size(); ++index) {
    if (!Caches(spec.layer_specs[index])) continue;
    const KvPlace place = KvPlaceOf(spec, index);
    LayerKvLayout& layer = layout.layers[place.layer];
    layer.shape = CachedShape(spec, index);
    layer.keys = kernels::KvPlaneBlockBytes(dtype, block_tokens, layer.shape.key_dim);
    layer.values = layer.shape.BlockBytes(dtype, block_tokens) - layer.keys;
    layer.heads = shard.Heads(index).kv_heads.size();
    if (layer.heads > 0) layer.index = block_tokens * IndexKeyBytes(spec, weights);
    if (!pages) continue;
    layer.in_page = taken[place.table];
    taken[place.table] += layer.block_bytes();
    layout.page = std::max(layout.page, taken[place.table]);
  }
  return layout;
}

uint64_t KvLayout::block_bytes() const {
  if (page > 0) return page;
  uint64_t bytes = 0;
  for (const LayerKvLayout& layer : layers) bytes += layer.block_bytes();
  return bytes;
}

uint64_t KvLayout::SpanBytes(size_t blocks) const {
  if (page > 0) return page;
  uint64_t bytes = 0;
  for (const LayerKvLayout& layer : layers) bytes += layer.SpanBytes(blocks);
  return bytes;
}

uint64_t KvLayout::StorageBytes(size_t blocks) const {
  if (page > 0) return uint64_t{page} * blocks;
  uint64_t bytes = 0;
  for (const LayerKvLayout& layer : layers) bytes += layer.Bytes(blocks);
  return bytes;
}

}  // namespace pinion
