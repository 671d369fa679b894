#pragma once

#include <cstdint>
#include <span>

#include "engine/kv/block_pool.h"

namespace pinion {

// SipHash-2-4 with 128 bits of output over `words`, each taken as 8 little-endian bytes.
//   key   {k0, k1}
// Result: `low` holds the first 8 bytes of the reference's output, `high` the last 8.
// Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, with the 128-bit
// finalisation of the authors' reference. A keyed hash: two inputs that collide cannot be
// constructed without the key, which matters on a server whose clients share the prefix cache.
BlockHash SipHash128(const BlockHash& key, std::span<const uint64_t> words);

}  // namespace pinion
