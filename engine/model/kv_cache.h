#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/model/attention_spec.h"
#include "engine/model/shard.h"
#include "engine/model/spec.h"
#include "kernels/kernels.h"

namespace pinion {

// Keys and values of one rank: per layer and KV head a plane of keys and a plane of values, each an
// array of `blocks` blocks in the kernels' layout, so that neighbouring blocks are one stretch of
// memory to read. Block numbers are the scheduler's, the same for every rank and layer. Fresh
// memory reads as zero.
class KvCache {
 public:
  static Result<KvCache> Allocate(const DecoderSpec& spec, const Shard& shard,
                                  kernels::KvDtype dtype, size_t block_tokens, size_t blocks);

  // The planes of a head of the shard; `values` is null where the shape is latent.
  const std::byte* keys(size_t layer, size_t head) const { return Plane(layer, head); }
  const std::byte* values(size_t layer, size_t head) const {
    return shape_.latent ? nullptr : Plane(layer, head) + blocks_ * key_stride_;
  }
  size_t key_stride() const { return key_stride_; }      // bytes from block to block
  size_t value_stride() const { return value_stride_; }  // likewise; 0 where latent

  // Writes the key and the value (unread where latent) of the token at `position` of a sequence.
  void Write(const kernels::Table& table, size_t layer, size_t head, const int32_t* block_table,
             size_t position, const float* key, const float* value);

  const KvShape& shape() const { return shape_; }
  size_t block_tokens() const { return block_tokens_; }
  kernels::KvDtype dtype() const { return dtype_; }
  const std::byte* data() const { return storage_.data(); }  // all of it: [size_bytes]
  size_t size_bytes() const { return storage_.size_bytes(); }

  // Bytes that one block takes over all layers of a rank.
  static uint64_t BytesPerBlock(const DecoderSpec& spec, const Shard& shard, kernels::KvDtype dtype,
                                size_t block_tokens);

 private:
  std::byte* Plane(size_t layer, size_t head) const {
    return storage_.data() + (layer * heads_ + head) * blocks_ * (key_stride_ + value_stride_);
  }

  Pages storage_;
  KvShape shape_;
  kernels::KvDtype dtype_ = kernels::KvDtype::kF32;
  size_t heads_ = 0, blocks_ = 0, block_tokens_ = 0, key_stride_ = 0, value_stride_ = 0;
};

}  // namespace pinion
