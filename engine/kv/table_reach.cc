#include "engine/kv/table_reach.h"

#include <algorithm>

namespace pinion {

size_t TableReach::First(size_t position) const {
  size_t first = 0;
  if (window > 0 && position + 1 > window) first = position + 1 - window;
  if (chunk > 0) first = std::max(first, position / chunk * chunk);
  return first;
}

size_t TableReach::MostBlocks(size_t tokens, size_t step, size_t block_tokens) const {
  const size_t all = (tokens + block_tokens - 1) / block_tokens;
  if (!limited() || tokens == 0) return all;
  const size_t seen = std::min(window > 0 ? window : chunk, chunk > 0 ? chunk : window);
  // They begin anywhere in a block.
  const size_t span = seen - 1 + std::min(step, tokens);
  return std::min(all, (span + block_tokens - 2) / block_tokens + 1);
}

size_t MostBlocks(std::span<const TableReach> tables, size_t tokens, size_t step,
                  size_t block_tokens) {
  size_t blocks = 0;
  for (const TableReach& table : tables) blocks += table.MostBlocks(tokens, step, block_tokens);
  return blocks;
}

size_t LongestIn(size_t blocks, std::span<const TableReach> tables, size_t most,
                 size_t block_tokens) {
  size_t fits = 0, exceeds = most + 1;
  while (exceeds - fits > 1) {
    const size_t middle = fits + (exceeds - fits) / 2;
    (MostBlocks(tables, middle, 1, block_tokens) <= blocks ? fits : exceeds) = middle;
  }
  return fits;
}

}  // namespace pinion
