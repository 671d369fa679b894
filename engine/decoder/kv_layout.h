#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// The memory layout of the blocks of one layer of a rank's KV cache, from shapes alone: [span][KV
// head][keys and values of the span's blocks]. A span is as many neighbouring blocks, of all heads
// of a layer, as fit into a huge page. Thus the first token of a sequence touches one such page per
// layer instead of two per head, and still each head reads a long context in long stretches. If
// heads are too many or too wide for both, they get the stretches, in spans of several huge pages.
//
// Spans are whole: a layer's last one may reach beyond the last block, so a full cache can take up
// to a span per layer more than its blocks (32 MiB in all for Llama-3.2-1B's shape); until then it
// is address space only.
struct LayerKvLayout {
  KvShape shape;
  size_t keys = 0, values = 0;  // bytes of a block of one head
  size_t heads = 0;
  size_t index = 0;    // bytes of a block of index keys, behind the heads of each span
  size_t in_page = 0;  // if blocks are pages: bytes from a page's begin to the first head

  // Whether a block's values lie right behind its keys, rather than behind all keys of its span.
  bool alternate() const;
  size_t block_bytes() const { return (keys + values) * heads + index; }

  // In a cache of so many blocks: the logarithm of a span's blocks; bytes of a span, of everything.
  unsigned SpanShift(size_t blocks) const;
  uint64_t SpanBytes(size_t blocks) const { return uint64_t{block_bytes()} << SpanShift(blocks); }
  uint64_t Bytes(size_t blocks) const;
};

// Of all layers of the cache (KvPlace), one after the other. Blocks have the same numbers in all of
// them, but need not have the same size.
//
// Unless layers of several tables differ in size: a block is then a page, one stretch of memory
// that holds the layers of any one table, one after the other. Its spans are of one block.
struct KvLayout {
  std::vector<LayerKvLayout> layers;
  size_t page = 0;  // bytes; 0: blocks are not pages

  // weights: their type, on which that of an indexer's keys depends (IndexKeyBytes).
  static KvLayout Of(const DecoderSpec& spec, const Shard& shard, kernels::KvDtype dtype,
                     size_t block_tokens, kernels::Dtype weights = kernels::Dtype::kF32);

  // Over all layers, or of a page; a span, and everything, in a cache of so many blocks.
  uint64_t block_bytes() const;
  uint64_t SpanBytes(size_t blocks) const;
  uint64_t StorageBytes(size_t blocks) const;
};

}  // namespace pinion
