#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// Keys and values of one rank, laid out as KvLayout says. Block numbers are the scheduler's, the
// same for every rank and layer; layers are those that attend (CachedLayer). Fresh memory reads as
// zero.
class KvCache {
 public:
  static Result<KvCache> Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks,
                                  kernels::Dtype weights = kernels::Dtype::kF32);

  // The planes of a head of the shard, from its first block on; `values` is null if the shape is
  // latent.
  const std::byte* keys(size_t layer, size_t head) const { return Head(layer, head); }
  const std::byte* values(size_t layer, size_t head) const {
    return shape_.latent ? nullptr : Head(layer, head) + values_offset_;
  }
  const kernels::KvStrides& key_strides() const { return key_strides_; }
  const kernels::KvStrides& value_strides() const { return value_strides_; }  // unused if latent

  // Writes the key and the value (unused if latent) of the token at `position` of a sequence.
  void Write(const kernels::Table& table, size_t layer, size_t head, const int32_t* block_table,
             size_t position, const float* key, const float* value);

  // A layer's index keys of one block, [block_tokens][IndexSpec::dim] activations; null if
  // there are none.
  std::byte* index_keys(size_t layer, int32_t block) const {
    if (index_strides_.block == 0) return nullptr;
    return storage_.data() + layer * layer_bytes_ + index_offset_ +
           index_strides_.At(static_cast<size_t>(block));
  }

  // Makes the memory of a layer's blocks [first, last) resident, with the rest of their spans.
  // Changes nothing; not at the same time as Write.
  void Touch(size_t layer, size_t first, size_t last);

  const KvShape& shape() const { return shape_; }
  size_t span_blocks() const { return key_strides_.blocks(); }
  size_t block_tokens() const { return block_tokens_; }
  kernels::KvDtype dtype() const { return dtype_; }
  size_t size_bytes() const { return size_bytes_; }  // of the blocks
  const Pages& storage() const { return storage_; }  // all of it, the last spans' rest included

 private:
  std::byte* Head(size_t layer, size_t head) const {
    return storage_.data() + layer * layer_bytes_ + head * head_bytes_;
  }

  Pages storage_;
  KvShape shape_;
  kernels::KvDtype dtype_ = kernels::KvDtype::kF32;
  kernels::KvStrides key_strides_ = {}, value_strides_ = {}, index_strides_ = {};
  size_t index_offset_ = 0;                  // from a layer's first keys to its first index keys
  size_t values_offset_ = 0;                 // from a head's first keys to its first values
  size_t head_bytes_ = 0, layer_bytes_ = 0;  // of a head within a span; of all spans
  size_t block_tokens_ = 0, size_bytes_ = 0;
};

}  // namespace pinion
