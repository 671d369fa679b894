#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/kv/free_runs.h"

namespace pinion {

// Identity of a full block: a hash over its tokens and over everything before them. 128 bits, so
// that two different prefixes never collide in practice (a collision would serve wrong text): among
// n blocks the odds are n^2 / 2^129, 10^-27 for the 10^6 blocks of a very large cache.
struct BlockHash {
  uint64_t high = 0, low = 0;
  bool operator==(const BlockHash&) const = default;
};

// Hash of a full block given its predecessor's hash ({} for the first block): SipHash-2-4-128 under
// a key drawn once per process, so that no client can craft a prompt that collides with another's.
// The same within a process, different in the next. Thread-safe.
BlockHash HashBlock(const BlockHash& parent, std::span<const int32_t> tokens);
// The predecessor of first blocks that only prompts with this salt share; {} if it is empty. Never
// the hash of a block.
BlockHash HashSalt(std::string_view salt);

// The scheduler counts the tokens, as it knows which look-ups led to an admission; the pool counts
// evictions.
struct KvStats {
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0, evictions = 0;
};

// Tracks which blocks of the KV cache are in use, by how many sequences, and which unused ones
// still hold a prefix worth keeping. Handles block numbers, not memory: all ranks share the
// numbering.
//
// A block is free (no content worth keeping), used (reference count > 0) or cached (count 0,
// content addressable by hash, evicted least recently used first when nothing is free, but before
// all others if it is spare). Not thread-safe: the scheduler owns it.
class BlockPool {
 public:
  // The number of blocks evicted together, and the gap left for a sequence to grow into before the
  // next run: attention reads runs of 16 blocks at nearly the rate of one long stretch, but single
  // blocks a quarter slower (Zen 4).
  static constexpr size_t kRunBlocks = 16;

  // Without `prefix_caching` Publish does nothing, so nothing is ever cached or reused.
  BlockPool(size_t blocks, size_t block_tokens, bool prefix_caching);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  bool prefix_caching() const { return prefix_caching_; }
  size_t block_tokens() const { return block_tokens_; }
  size_t total() const;
  size_t available() const;  // free + cached: the blocks that Allocate can still give
  size_t used() const;
  size_t reached() const { return reached_; }  // blocks from here on have never been given out

  // A block with reference count 1, or nullopt if every block is used. `after`: the sequence's last
  // block so far; the pool prefers the block right behind it, so that a sequence's KV forms long
  // runs. A new run starts at a distance from its neighbour, which can so keep growing.
  std::optional<int32_t> Allocate(std::optional<int32_t> after = std::nullopt);
  // At count 0 the block becomes cached if it has a hash, else free. Release a sequence's blocks
  // last to first, so that prefixes are evicted after their continuations.
  void Release(int32_t block);

  // Makes a full block addressable. Does nothing if another block already has that hash.
  void Publish(int32_t block, const BlockHash& hash);
  // Takes back a used block's name, if it has one.
  void Withdraw(int32_t block);
  bool Has(const BlockHash& hash) const { return by_hash_.contains(hash); }
  // Makes the block with this hash spare, if it is cached: it is evicted before those that are not,
  // unless Reuse takes it first. Does nothing if it is used, or there is none.
  void Spare(const BlockHash& hash);
  // The block with this hash, referenced once more (a cached one becomes used); nullopt: none.
  std::optional<int32_t> Reuse(const BlockHash& hash);
  // Forgets the content of all blocks, used ones included (so that a measurement starts cold).
  void DropCached();

  KvStats& stats() { return stats_; }
  const KvStats& stats() const { return stats_; }

 private:
  struct Block;  // count, hash, place in the LRU list: see block_pool.cc
  // Frees the block that has been spare for longest, or else the least recently used cached one,
  // and, if they are next, those beside it: a sequence's blocks are released one after the other,
  // so this frees a run of neighbours, which the next sequence gets first to last and attention
  // reads in one go.
  void Evict();
  int32_t NewRunBlock() const;  // the block to begin a new run with; requires a free block
  size_t block_tokens_;
  size_t reached_ = 0;
  bool prefix_caching_;
  KvStats stats_;
  std::vector<Block> blocks_;
  FreeRuns free_;
  // Least recently used first, and longest spare first.
  std::list<int32_t> cached_, spare_;
  struct HashOf {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };
  std::unordered_map<BlockHash, int32_t, HashOf> by_hash_;
};

}  // namespace pinion
