#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/decoder/step.h"

namespace pinion {

// Slices of one row whose block tables, the given ones, agree on the tokens [begin, end). A lone
// slice's run is the rest of its context.
struct SharedRun {
  std::span<const uint32_t> slices;
  size_t begin, end;
};

// Covers the context of each of `slices` (of one row each) with runs, in order, exactly once. As in
// a tree of prefixes, all slices that share blocks take them together. A shared run's tokens
// precede the positions of all its slices. Its ends are multiples of block_tokens.
void FindSharedRuns(const StepBatch& batch, const std::vector<uint32_t>& slices,
                    size_t block_tokens, std::span<const size_t> tables,
                    const std::function<void(const SharedRun&)>& take);

}  // namespace pinion
