// Blocks and states that a sequence takes from the prefix cache when it begins, and the states that
// it leaves there.

#include <algorithm>
#include <span>
#include <utility>

#include "engine/sched/scheduler.h"

namespace pinion {

// Takes the sequence's leading blocks from the prefix cache, but never all of its tokens: the last
// one must be computed for its logits. False, with nothing taken, if the other tokens do not fit.
bool Scheduler::TakePrefix(Sequence& sequence) {
  const size_t blocks = CachedBlocks(sequence);
  tables_.TakePrefix(sequence.tables, std::span(sequence.hashes).first(blocks));
  sequence.computed = blocks * pool_.block_tokens();
  sequence.likely_prefixes = {blocks, tables_.LongestShared(sequence.hashes),
                              sequence.prompt_tokens / pool_.block_tokens()};
  // The head of the queue always gets in if nothing runs: Add has checked that it can be computed.
  if (!running_.empty() &&
      Lacking(sequence, sequence.tokens.size()) + Headroom() > pool_.available()) {
    sequence.computed = 0;
    ReleaseBlocks(sequence);
    return false;
  }
  if (sequence.preemptions == 0 && pool_.prefix_caching() && !sequence.rates_prompt()) {
    // After a preemption a sequence finds its own blocks again; that would inflate the hit rate.
    sequence.cached_prompt_tokens =
        sequence.computed - std::min(sequence.computed, sequence.handed_tokens);
    pool_.stats().prefix_query_tokens += sequence.prompt_tokens;
    pool_.stats().prefix_hit_tokens += sequence.cached_prompt_tokens;
  }
  return true;
}

// The longest prefix, in blocks, behind which the sequence can begin.
size_t Scheduler::CachedBlocks(Sequence& sequence) {
  if (!pool_.prefix_caching() || sequence.rates_prompt()) return 0;
  const size_t most = (sequence.tokens.size() - 1) / pool_.block_tokens();
  HashBlocks(sequence, most, pool_.block_tokens());
  const size_t found = tables_.LongestCached(std::span(sequence.hashes).first(most));
  return states_ ? TakeState(sequence, found) : found;
}

// Of the prefix that the cache has, `found` blocks, takes the longest that has a kept state, too,
// and decides which states the sequence is to keep. Returns the blocks that it takes.
size_t Scheduler::TakeState(Sequence& sequence, size_t found) {
  const size_t block_tokens = pool_.block_tokens(), most = sequence.hashes.size();
  const std::span<const BlockHash> hashes = sequence.hashes;
  size_t blocks = found, cached = found;
  do {
    blocks = cached;
    while (blocks > 0 && !states_->Has(hashes[blocks - 1])) --blocks;
    cached = tables_.LongestCached(hashes.first(blocks));
  } while (cached < blocks);
  if (blocks > 0) sequence.begins_from = *states_->Use(hashes[blocks - 1]);
  sequence.keeps_at.clear();
  size_t before = blocks;
  for (const size_t end : {found, most}) {
    const size_t least = sequence.hands_over && end == most ? 1 : kLeastKeptBlocks;
    if (end < before + least) continue;
    sequence.keeps_at.push_back(end * block_tokens);
    before = end;
  }
  return blocks;
}

// Finds places for the states that the step's slices end at, one for each prefix.
void Scheduler::ReserveStates() {
  std::vector<BlockHash> kept;
  for (Slice& slice : slices_) {
    const std::vector<size_t>& keeps_at = slice.sequence->keeps_at;
    const size_t end = slice.first + slice.count;
    if (std::find(keeps_at.begin(), keeps_at.end(), end) == keeps_at.end()) continue;
    const BlockHash& hash = slice.sequence->hashes[end / pool_.block_tokens() - 1];
    if (states_->Has(hash) || std::find(kept.begin(), kept.end(), hash) != kept.end()) continue;
    slice.keeps_in = states_->Reserve().value_or(-1);
    kept.push_back(hash);
  }
}

// The step copies the states before a later one begins with them, or writes to their places.
void Scheduler::SettleStates(const std::vector<Slice>& slices) {
  for (const Slice& slice : slices) {
    Sequence& sequence = *slice.sequence;
    if (slice.begins_from >= 0) states_->Release(std::exchange(sequence.begins_from, -1));
    if (slice.keeps_in < 0) continue;
    const size_t blocks = (slice.first + slice.count) / pool_.block_tokens();
    states_->Keep(slice.keeps_in, sequence.hashes[blocks - 1]);
  }
}

}  // namespace pinion
