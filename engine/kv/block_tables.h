#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv/block_pool.h"
#include "engine/spec/reach.h"

namespace pinion {

// The blocks of a sequence by which some of its layers find keys and values: blocks[i] holds its
// tokens [i * block_tokens, (i + 1) * block_tokens). The first `gone` lie behind what the next
// token sees; they are -1 and not held. SpareBehind has looked at the first `passed`.
struct BlockTable {
  std::vector<int32_t> blocks;
  size_t gone = 0, passed = 0;

  size_t held() const { return blocks.size() - gone; }
};

// Gives blocks of a pool to the tables of sequences and takes them back. Every sequence has as many
// tables as there are reaches; they are empty at first. Not thread-safe.
class BlockTables {
 public:
  using Tables = std::vector<BlockTable>;

  BlockTables(BlockPool& pool, std::vector<Reach> reaches);

  size_t count() const { return reaches_.size(); }
  // MostBlocks of these reaches.
  size_t Most(size_t tokens, size_t step) const;

  // Blocks that a sequence lacks for its first `tokens` tokens if those left are computed at once.
  size_t Short(const Tables& tables, size_t tokens) const;
  // As Short, but those behind `computed` in steps of at most `step`, after each of which blocks
  // are dropped.
  size_t Lacking(const Tables& tables, size_t computed, size_t tokens, size_t step) const;
  // Blocks to keep free for a sequence of `tokens` tokens that may have `soon` after its next step
  // and `longer` at its end: in each table those that `soon` tokens take beyond the ones it has,
  // and at least one if `longer` tokens take more.
  size_t Growing(const Tables& tables, size_t computed, size_t tokens, size_t soon,
                 size_t longer) const;
  // How many tokens from `first` on, at most `count`, the pool's available blocks suffice for.
  size_t Fitting(const Tables& tables, size_t first, size_t count) const;

  // Takes the blocks that are short. Requires that the pool has them.
  void Grow(Tables& tables, size_t tokens);
  // Makes the blocks [begin, end) of every table addressable by the hashes of the same index.
  void Publish(const Tables& tables, std::span<const BlockHash> hashes, size_t begin, size_t end);
  // Gives back the blocks that the token at `position`, and so every later one, does not see.
  void DropBehind(Tables& tables, size_t position);
  // Makes blocks that DropBehind gave back spare (BlockPool::Spare), except for those that a
  // sequence needs that begins behind a prefix of one of these lengths, in blocks, or of one block
  // less. `hashes`: of the sequence's computed blocks.
  void SpareBehind(Tables& tables, std::span<const BlockHash> hashes,
                   std::span<const size_t> prefixes);
  // Gives back everything, last blocks first: the pool evicts in order of release, so a prefix
  // outlives its continuations.
  void Release(Tables& tables);

  // The longest prefix, in blocks, of those with these hashes behind which a sequence can begin:
  // the pool has all blocks that the token behind it sees.
  size_t LongestCached(std::span<const BlockHash> hashes) const;
  // The longest prefix, in blocks, that another sequence has computed, as far as tables that keep
  // everything tell; it may lack the blocks that the token behind it sees of others.
  size_t LongestShared(std::span<const BlockHash> hashes) const;
  // Takes the blocks of such a prefix; the tables are empty.
  void TakePrefix(Tables& tables, std::span<const BlockHash> hashes);

  // The first block of a table that a token behind a prefix of so many blocks sees.
  size_t FirstBlock(size_t table, size_t prefix_blocks) const;
  // A single block of a prefix, by the table that it is for: whether the pool has it; one more
  // reference to it (nullopt: it has none), which BlockPool::Release ends; a name for one that was
  // filled outside of any sequence.
  bool Has(const BlockHash& hash, size_t table) const;
  std::optional<int32_t> Reuse(const BlockHash& hash, size_t table);
  void Publish(int32_t block, const BlockHash& hash, size_t table);

 private:
  size_t BlocksFor(size_t tokens) const;

  BlockPool& pool_;
  std::vector<Reach> reaches_;
  bool some_keep_everything_;
};

}  // namespace pinion
