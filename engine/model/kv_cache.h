#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/model/shard.h"
#include "engine/model/spec.h"
#include "kernels/kernels.h"

namespace pinion {

// Keys and values of one rank: per layer a pool of `blocks` blocks in the kernels' layout. Block
// numbers are the scheduler's, the same for every rank and layer. Fresh memory reads as zero.
class KvCache {
 public:
  static Result<KvCache> Allocate(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                                  size_t block_tokens, size_t blocks);

  std::byte* layer(size_t index) const { return storage_.data() + index * layer_bytes_; }
  size_t block_bytes() const { return block_bytes_; }
  size_t block_tokens() const { return block_tokens_; }
  kernels::Dtype dtype() const { return dtype_; }
  size_t size_bytes() const { return storage_.size_bytes(); }

  // Bytes that one block takes over all layers of a rank.
  static uint64_t BytesPerBlock(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                                size_t block_tokens);

 private:
  Pages storage_;
  kernels::Dtype dtype_ = kernels::Dtype::kF32;
  size_t block_tokens_ = 0, block_bytes_ = 0, layer_bytes_ = 0;
};

}  // namespace pinion
