#include "engine/kv/table_blocks.h"

#include <algorithm>

namespace pinion {

size_t MostBlocks(const Reach& reach, size_t tokens, size_t step, size_t block_tokens) {
  if (tokens == 0) return 0;
  const size_t all = (tokens + block_tokens - 1) / block_tokens;
  // The tokens that the step's first one sees, and the step's others, begin anywhere in a block.
  const size_t span = reach.Most(tokens) - 1 + std::min(step, tokens);
  return std::min(all, (span + block_tokens - 2) / block_tokens + 1);
}

size_t MostBlocks(std::span<const Reach> tables, size_t tokens, size_t step, size_t block_tokens) {
  size_t blocks = 0;
  for (const Reach& reach : tables) blocks += MostBlocks(reach, tokens, step, block_tokens);
  return blocks;
}

size_t LongestIn(size_t blocks, std::span<const Reach> tables, size_t most, size_t block_tokens) {
  size_t fits = 0, exceeds = most + 1;
  while (exceeds - fits > 1) {
    const size_t middle = fits + (exceeds - fits) / 2;
    (MostBlocks(tables, middle, 1, block_tokens) <= blocks ? fits : exceeds) = middle;
  }
  return fits;
}

}  // namespace pinion
