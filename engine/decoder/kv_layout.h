#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// The memory layout of the blocks of one rank's KV cache, from shapes alone: [layer][span][KV
// head][keys and values of the span's blocks]. A span is as many neighbouring blocks, of all heads
// of a layer, as fit into a huge page. Thus the first token of a sequence touches one such page per
// layer instead of two per head, and still each head reads a long context in long stretches. If
// heads are too many or too wide for both, they get the stretches, in spans of several huge pages.
//
// Spans are whole: a layer's last one may reach beyond the last block, so a full cache can take up
// to a span per layer more than its blocks (32 MiB in all for Llama-3.2-1B's shape); until then it
// is address space only.
struct KvLayout {
  KvShape shape;
  size_t keys = 0, values = 0;   // bytes of a block of one layer and head
  size_t heads = 0, layers = 0;  // layers that attend
  size_t index = 0;  // bytes of a block of one layer's index keys, behind the heads of each span

  // weights: their type, on which that of an indexer's keys depends (IndexKeyBytes).
  static KvLayout Of(const DecoderSpec& spec, const Shard& shard, kernels::KvDtype dtype,
                     size_t block_tokens, kernels::Dtype weights = kernels::Dtype::kF32);

  // Whether a block's values lie right behind its keys, rather than behind all keys of its span.
  bool alternate() const;
  size_t layer_block_bytes() const { return (keys + values) * heads + index; }
  uint64_t block_bytes() const { return uint64_t{layer_block_bytes()} * layers; }

  // In a cache of so many blocks: the logarithm of a span's blocks; bytes of a span over all
  // layers; bytes of a layer; bytes of everything.
  unsigned SpanShift(size_t blocks) const;
  uint64_t SpanBytes(size_t blocks) const { return block_bytes() << SpanShift(blocks); }
  uint64_t LayerBytes(size_t blocks) const;
  uint64_t StorageBytes(size_t blocks) const { return LayerBytes(blocks) * layers; }
};

}  // namespace pinion
