#pragma once

#include <cstddef>
#include <span>

#include "engine/spec/reach.h"

namespace pinion {

// How many blocks the tables of a sequence hold. Blocks that no later token of the sequence sees
// are given back after each step; tokens see none after themselves (Reach::ahead is 0).

// At most, while the first `tokens` tokens are computed in steps of at most `step`: one table, and
// tables of these reaches.
size_t MostBlocks(const Reach& reach, size_t tokens, size_t step, size_t block_tokens);
size_t MostBlocks(std::span<const Reach> tables, size_t tokens, size_t step, size_t block_tokens);

// The longest sequence, of at most `most` tokens, that so many blocks hold if it is computed one
// token at a time; its prompt takes larger steps if they hold those, too.
size_t LongestIn(size_t blocks, std::span<const Reach> tables, size_t most, size_t block_tokens);

}  // namespace pinion
