#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace pinion::kernels {

// Copies the keys of some tokens of a sequence into consecutive slots of blocks of the same layout,
// KvPlaneBlockBytes apart, so that attention over the copy sees these tokens alone. Bit for bit,
// scales included. Slots of the last block beyond `count` get anything.
struct KvGatherArgs {
  const std::byte* keys;  // the KV head's plane
  KvStrides strides;
  const int32_t* block_table;  // block_table[p / block_tokens] holds position p
  const int32_t* positions;    // [count], in any order; neighbours share cache lines
  size_t count, block_tokens, key_dim;
  KvDtype dtype;
  std::byte* dst;
};
void GatherKeys(const KvGatherArgs& args);

}  // namespace pinion::kernels
