#pragma once

#include <cstdint>
#include <vector>

namespace pinion::harness {

// Prompt number `index` of stream `stream`: `length` token ids below `vocabulary`, from (seed,
// stream, index) alone.
std::vector<int32_t> RandomPrompt(uint64_t seed, uint64_t stream, uint64_t index, int length,
                                  int vocabulary);

}  // namespace pinion::harness
