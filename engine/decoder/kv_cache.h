#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// Keys and values of one rank, laid out as KvLayout says. Block numbers are the scheduler's, the
// same for every rank and layer; each is of one of a sequence's tables. Layers are those of the
// cache, in each of which one layer of every table finds its keys and values (KvPlace), or all
// layers of an encoder. Fresh memory reads as zero.
class KvCache {
 public:
  static Result<KvCache> Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks,
                                  kernels::Dtype weights = kernels::Dtype::kF32,
                                  const MemoryPolicy& memory = {});

  // The planes of a head of the shard, from its first block on; `values` is null if the shape is
  // latent.
  const std::byte* keys(size_t layer, size_t head) const { return Head(layer, head); }
  const std::byte* values(size_t layer, size_t head) const {
    const Layer& of = layers_[layer];
    return of.shape.latent ? nullptr : Head(layer, head) + of.values_offset;
  }
  const kernels::KvStrides& key_strides(size_t layer) const { return layers_[layer].key_strides; }
  const kernels::KvStrides& value_strides(size_t layer) const {  // unused if latent
    return layers_[layer].value_strides;
  }

  // Keys and values (unused if latent) of neighbouring tokens of a sequence, the first of which is
  // at `position`; `stride` elements lie from token to token. All are of one block.
  struct Tokens {
    size_t position;
    const float *keys, *values;
    size_t count = 1, stride = 0;
  };
  void Write(const kernels::Table& table, size_t layer, size_t head, const int32_t* block_table,
             const Tokens& tokens);

  // A layer's index keys of one block, [block_tokens][IndexSpec::dim] activations; null if
  // there are none.
  std::byte* index_keys(size_t layer, int32_t block) const {
    const Layer& of = layers_[layer];
    if (of.index_strides.block == 0) return nullptr;
    return storage_.data() + of.offset + of.index_offset +
           of.index_strides.At(static_cast<size_t>(block));
  }

  // The parts of the storage in each of which a block has its place: one for every layer, or one in
  // all if blocks are pages (KvLayout).
  size_t parts() const { return paged_ ? 1 : layers_.size(); }
  // Makes the memory of a part's blocks [first, last) resident, with the rest of their spans.
  // Changes nothing; not at the same time as Write.
  void Touch(size_t part, size_t first, size_t last);

  // A layer's memory of a block, in pieces. Their order and sizes follow from the layout, not from
  // the number of blocks.
  std::vector<std::span<std::byte>> PiecesOf(size_t layer, int32_t block) const;
  size_t block_bytes(size_t layer) const {  // of these pieces
    const Layer& of = layers_[layer];
    return (of.keys + of.values) * of.heads + of.index;
  }

  const KvShape& shape(size_t layer) const { return layers_[layer].shape; }
  size_t span_blocks() const;  // of the layer with the longest spans
  size_t block_tokens() const { return block_tokens_; }
  kernels::KvDtype dtype() const { return dtype_; }
  size_t size_bytes() const { return size_bytes_; }  // of the blocks
  const Pages& storage() const { return storage_; }  // all of it, the last spans' rest included

 private:
  std::byte* Head(size_t layer, size_t head) const {
    return storage_.data() + layers_[layer].offset + head * layers_[layer].head_bytes;
  }

  struct Layer {
    KvShape shape;
    size_t keys = 0, values = 0, index = 0;  // bytes of a block: of one head, of index keys
    size_t heads = 0;
    kernels::KvStrides key_strides = {}, value_strides = {}, index_strides = {};
    size_t values_offset = 0;      // from a head's first keys to its first values
    size_t index_offset = 0;       // from the first keys to the first index keys
    size_t head_bytes = 0;         // of a head within a span
    size_t offset = 0, bytes = 0;  // in the storage; of all spans
  };

  Pages storage_;
  std::vector<Layer> layers_;
  kernels::KvDtype dtype_ = kernels::KvDtype::kF32;
  size_t block_tokens_ = 0, size_bytes_ = 0;
  bool paged_ = false;
};

}  // namespace pinion
