#pragma once

#include <vector>

#include "engine/host/caches.h"
#include "harness/probe/probe.h"
#include "harness/probe/rate.h"

namespace pinion::harness {

// The cache levels that the two operands of products on matrix tiles come from.
struct TileOperands {
  int a_level, b_level;
  const char* where;  // "L1 and L2"
};
inline constexpr TileOperands kTileOperands[] = {
    {1, 1, "L1"}, {1, 2, "L1 and L2"}, {2, 2, "L2"}, {1, 3, "L1 and L3"}};

// Bytes of an operand that comes from the cache of this level: a quarter of it, so that two fit,
// and for the last one twice the L2, so that they do not fit it. 0 if there is no such cache.
uint64_t TileOperandBytes(const std::vector<Cache>& caches, int level);

// Rates of every usable product with every pair of operands that fits a part of the arena; empty
// without matrix tiles. caches: of the team's first CPU.
std::vector<InstructionRate> MeasureTiles(Team& team, SamplingPlan sampling, const Arena& arena,
                                          const std::vector<Cache>& caches);

}  // namespace pinion::harness
