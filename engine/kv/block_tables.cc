#include "engine/kv/block_tables.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/kv/table_blocks.h"

namespace pinion {
namespace {

// The same tokens have a block in each table. As hashes are keyed, no client can choose tokens
// whose hash is another's with some bits flipped.
BlockHash InTable(BlockHash hash, size_t table) {
  hash.high ^= table;
  return hash;
}

}  // namespace

BlockTables::BlockTables(BlockPool& pool, std::vector<Reach> reaches)
    : pool_(pool),
      reaches_(std::move(reaches)),
      some_keep_everything_(std::any_of(reaches_.begin(), reaches_.end(),
                                        [](const Reach& reach) { return !reach.limited(); })) {
  CHECK(!reaches_.empty());
}

size_t BlockTables::BlocksFor(size_t tokens) const {
  return (tokens + pool_.block_tokens() - 1) / pool_.block_tokens();
}

size_t BlockTables::Most(size_t tokens, size_t step) const {
  return MostBlocks(reaches_, tokens, step, pool_.block_tokens());
}

size_t BlockTables::Short(const Tables& tables, size_t tokens) const {
  const size_t needed = BlocksFor(tokens);
  size_t lacking = 0;
  for (const BlockTable& table : tables) lacking += needed - std::min(needed, table.blocks.size());
  return lacking;
}

size_t BlockTables::Lacking(const Tables& tables, size_t computed, size_t tokens,
                            size_t step) const {
  if (tokens <= computed) return 0;
  const size_t rows = std::min(step, tokens - computed);
  size_t lacking = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    const size_t most = std::min(BlocksFor(tokens) - tables[i].gone,
                                 MostBlocks(reaches_[i], tokens, rows, pool_.block_tokens()));
    lacking += most - std::min(most, tables[i].held());
  }
  return lacking;
}

size_t BlockTables::Growing(const Tables& tables, size_t computed, size_t tokens, size_t soon,
                            size_t longer) const {
  size_t growing = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto most = [&](size_t length, size_t rows) {
      return MostBlocks(reaches_[i], length, std::max<size_t>(1, rows), pool_.block_tokens());
    };
    const size_t had = std::max(most(tokens, tokens - computed), tables[i].held());
    const size_t next = most(soon, soon - std::min(soon, tokens));
    growing +=
        std::max<size_t>(most(longer, tokens - computed) > had ? 1 : 0, next - std::min(next, had));
  }
  return growing;
}

size_t BlockTables::Fitting(const Tables& tables, size_t first, size_t count) const {
  while (count > 0 && Short(tables, first + count) > pool_.available()) {
    // Without the tokens in the last block.
    const size_t last = (first + count - 1) / pool_.block_tokens() * pool_.block_tokens();
    count = last > first ? last - first : 0;
  }
  return count;
}

void BlockTables::Grow(Tables& tables, size_t tokens) {
  const size_t needed = BlocksFor(tokens);
  for (BlockTable& table : tables)
    while (table.blocks.size() < needed) {
      const auto after =
          table.held() == 0 ? std::nullopt : std::optional<int32_t>(table.blocks.back());
      const auto block = pool_.Allocate(after);
      CHECK(block) << "the pool had fewer blocks than available()";
      table.blocks.push_back(*block);
    }
}

void BlockTables::Publish(const Tables& tables, std::span<const BlockHash> hashes, size_t begin,
                          size_t end) {
  for (size_t i = 0; i < tables.size(); ++i)
    for (size_t block = std::max(begin, tables[i].gone); block < end; ++block)
      Publish(tables[i].blocks[block], hashes[block], i);
}

void BlockTables::DropBehind(Tables& tables, size_t position) {
  for (size_t i = 0; i < tables.size(); ++i) {
    BlockTable& table = tables[i];
    const size_t first =
        std::min(reaches_[i].First(position) / pool_.block_tokens(), table.blocks.size());
    for (size_t block = first; block-- > table.gone;)
      pool_.Release(std::exchange(table.blocks[block], -1));
    table.gone = std::max(table.gone, first);
  }
}

// The block before those that the sequence holds is not looked at yet: the next turn of a
// conversation may begin with a few tokens less than were computed of this one. If no table keeps
// everything, nothing tells where prompts part, and all blocks are as good.
void BlockTables::SpareBehind(Tables& tables, std::span<const BlockHash> hashes,
                              std::span<const size_t> prefixes) {
  if (!some_keep_everything_) return;
  for (size_t i = 0; i < tables.size(); ++i) {
    BlockTable& table = tables[i];
    const size_t end = std::max<size_t>(table.gone, 1) - 1;
    const auto needed = [&](size_t block) {
      return std::any_of(prefixes.begin(), prefixes.end(), [&](size_t prefix) {
        return block < prefix && block >= FirstBlock(i, prefix - 1);
      });
    };
    for (size_t block = end; block-- > table.passed;)
      if (!needed(block)) pool_.Spare(InTable(hashes[block], i));
    table.passed = std::max(table.passed, end);
  }
}

void BlockTables::Release(Tables& tables) {
  for (BlockTable& table : tables) {
    while (table.held() > 0) {
      pool_.Release(table.blocks.back());
      table.blocks.pop_back();
    }
    table = {};
  }
}

// ---- Prefixes ----------------------------------------------------------------------------------

size_t BlockTables::FirstBlock(size_t table, size_t prefix_blocks) const {
  return reaches_[table].First(prefix_blocks * pool_.block_tokens()) / pool_.block_tokens();
}

bool BlockTables::Has(const BlockHash& hash, size_t table) const {
  return pool_.Has(InTable(hash, table));
}

std::optional<int32_t> BlockTables::Reuse(const BlockHash& hash, size_t table) {
  return pool_.Reuse(InTable(hash, table));
}

void BlockTables::Publish(int32_t block, const BlockHash& hash, size_t table) {
  pool_.Publish(block, InTable(hash, table));
}

size_t BlockTables::LongestShared(std::span<const BlockHash> hashes) const {
  size_t longest = hashes.size();
  for (size_t table = 0; table < count(); ++table) {
    if (reaches_[table].limited()) continue;
    size_t found = 0;
    while (found < longest && Has(hashes[found], table)) ++found;
    longest = found;
  }
  return longest;
}

size_t BlockTables::LongestCached(std::span<const BlockHash> hashes) const {
  // A table without a limit needs every block: the prefix ends before the first that it lacks.
  size_t longest = LongestShared(hashes);
  // A block that another lacks must lie behind what the prefix's continuation sees, or not be part
  // of the prefix.
  for (size_t table = 0; table < count() && longest > 0;) {
    size_t block = longest;
    const size_t first = FirstBlock(table, longest);
    while (block > first && Has(hashes[block - 1], table)) --block;
    if (block > first) {
      longest = block - 1;
      table = 0;  // a shorter prefix sees others
    } else {
      ++table;
    }
  }
  return longest;
}

void BlockTables::TakePrefix(Tables& tables, std::span<const BlockHash> hashes) {
  for (size_t i = 0; i < tables.size(); ++i) {
    BlockTable& table = tables[i];
    table.gone = table.passed = FirstBlock(i, hashes.size());
    table.blocks.assign(table.gone, -1);
    for (size_t block = table.gone; block < hashes.size(); ++block) {
      const auto taken = Reuse(hashes[block], i);
      CHECK(taken) << "block " << block << " of table " << i << " is not cached";
      table.blocks.push_back(*taken);
    }
  }
}

}  // namespace pinion
