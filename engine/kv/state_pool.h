#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/kv/block_pool.h"

namespace pinion {

// Which states of recurrent layers are kept, beside those of running sequences, so that a prompt
// can begin behind a prefix that another one computed. Handles numbers of places, as BlockPool does
// blocks; a state is addressed by the hash of the last block before it. Least recently used states
// make room. Not thread-safe: the scheduler owns it.
class StatePool {
 public:
  // Places [first, first + count) of every rank's states.
  StatePool(int32_t first, size_t count);

  size_t total() const { return total_; }
  size_t kept() const { return by_hash_.size(); }
  bool Has(const BlockHash& hash) const { return by_hash_.contains(hash); }

  // The place of the state behind this block, which now counts as used last; it is neither given
  // to Reserve nor forgotten until Release. nullopt: none is kept.
  std::optional<int32_t> Use(const BlockHash& hash);
  void Release(int32_t place);

  // A place to write a state to, of which nothing else is kept any more; nullopt if every one is in
  // use. Either Keep or Cancel ends the reservation.
  std::optional<int32_t> Reserve();
  void Keep(int32_t place, const BlockHash& hash);  // does nothing but Cancel if the hash is kept
  void Cancel(int32_t place);

  void Drop();  // forgets all states that are not in use

 private:
  struct Entry {
    BlockHash hash;
    int32_t place = 0;
    int users = 0;
  };
  struct HashOf {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };

  size_t total_;
  std::vector<int32_t> free_;  // the lowest last, at first
  std::list<Entry> kept_;      // least recently used first
  std::unordered_map<BlockHash, std::list<Entry>::iterator, HashOf> by_hash_;
};

}  // namespace pinion
