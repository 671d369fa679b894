#pragma once

#include <cstddef>
#include <span>

namespace pinion {

// How far back the tokens see whose keys and values a block table leads to: blocks behind that need
// not be kept. A token sees itself; the nearer of both limits holds.
struct TableReach {
  size_t window = 0;  // so many tokens, itself included; 0: no limit
  size_t chunk = 0;   // those from the last multiple of chunk on; 0: no limit

  bool limited() const { return window > 0 || chunk > 0; }
  // The first token that the one at `position` sees.
  size_t First(size_t position) const;
  // The blocks that a sequence holds at most while its first `tokens` tokens are computed, in steps
  // of at most `step`.
  size_t MostBlocks(size_t tokens, size_t step, size_t block_tokens) const;
};

// Over all tables.
size_t MostBlocks(std::span<const TableReach> tables, size_t tokens, size_t step,
                  size_t block_tokens);
// The longest sequence, of at most `most` tokens, that so many blocks hold if it is computed one
// token at a time; its prompt takes larger steps if they hold those, too.
size_t LongestIn(size_t blocks, std::span<const TableReach> tables, size_t most,
                 size_t block_tokens);

}  // namespace pinion
