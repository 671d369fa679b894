// Scheduler: a step's results. Sequences take their tokens, advance and end.

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/sched/scheduler.h"

namespace pinion {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<std::unique_ptr<Sequence>> Scheduler::Commit(const std::vector<int32_t>& sampled,
                                                         const Following& following) {
  CHECK(!open_.empty()) << "Commit called without Schedule";
  AdvanceNewest();
  const OpenStep& step = open_.oldest();
  TakeTokens(step.slices, sampled, following);
  if (times_) Observe(step);
  auto finished = RemoveFinished(step.slices);
  open_.Pop();
  return finished;
}

void Scheduler::TakeTokens(const std::vector<Slice>& slices, const std::vector<int32_t>& sampled,
                           const Following& following) {
  CHECK(following.empty() || following.size() == sampled.size());
  size_t next = 0;
  for (const Slice& slice : slices) {
    Sequence& sequence = *slice.sequence;
    --sequence.steps_in_flight;
    const bool is_whole = sequence.steps_in_flight == 0 && sequence.left() == 0;
    if (sequence.score && is_whole) sequence.finish = FinishReason::kLength;
    if (!slice.samples) continue;
    CHECK(next < sampled.size()) << "only " << sampled.size()
                                 << " tokens for the slices that sample";
    if (!sequence.aborted && sampled[next] < 0)
      sequence.finish = FinishReason::kAborted;
    else if (!sequence.aborted)
      Append(sequence, sampled[next],
             following.empty() ? std::span<const int32_t>() : following[next]);
    ++next;
  }
  CHECK(next == sampled.size()) << sampled.size() << " tokens for " << next << " slices";
}

// From here on the newest step counts as computed.
void Scheduler::AdvanceNewest() {
  if (std::exchange(newest_is_computed_, true)) return;
  const std::vector<Slice>& slices = open_.newest().slices;
  if (states_) SettleStates(slices);
  for (const Slice& slice : slices) Advance(slice);
}

// Marks the slice as computed, publishes the blocks that it filled, and drops those that no later
// token sees.
void Scheduler::Advance(const Slice& slice) {
  Sequence& sequence = *slice.sequence;
  const size_t full_before = sequence.computed / pool_.block_tokens();
  sequence.computed = slice.first + slice.count;
  if (sequence.rates_prompt()) sequence.scored = std::max(sequence.scored, sequence.computed);
  if (pool_.prefix_caching()) {
    const size_t full = sequence.computed / pool_.block_tokens();
    HashBlocks(sequence, full, pool_.block_tokens());
    tables_.Publish(sequence.tables, sequence.hashes, full_before, full);
  }
  tables_.DropBehind(sequence.tables, sequence.computed);
  // The blocks of one that takes no prefixes may be another's.
  if (pool_.prefix_caching() && !sequence.rates_prompt())
    tables_.SpareBehind(sequence.tables, sequence.hashes, sequence.likely_prefixes);
}

void Scheduler::Append(Sequence& sequence, int32_t token, std::span<const int32_t> following) {
  sequence.tokens.push_back(token);
  sequence.finish = FinishOf(sequence);
  sequence.jumped = 0;
  for (const int32_t next : following) {
    if (sequence.finish != FinishReason::kNone) return;
    sequence.tokens.push_back(next);
    ++sequence.jumped;
    sequence.finish = FinishOf(sequence);
  }
}

FinishReason Scheduler::FinishOf(const Sequence& sequence) const {
  const SamplingParams& params = sequence.params;
  const int32_t token = sequence.tokens.back();
  const size_t output = sequence.output_tokens();
  // A grammar allows an end only where nothing else may follow, or the model wants it.
  if (sequence.mask_row >= 0 && Contains(sequence.eos_ids, token)) return FinishReason::kStop;
  const bool stops = (!params.ignore_eos && Contains(sequence.eos_ids, token)) ||
                     Contains(params.stop_token_ids, token);
  if (stops && output >= static_cast<size_t>(params.min_tokens)) return FinishReason::kStop;
  if (output >= static_cast<size_t>(params.max_tokens) ||
      sequence.tokens.size() >= options_.max_model_len)
    return FinishReason::kLength;
  return FinishReason::kNone;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::RemoveFinished(const std::vector<Slice>& slices) {
  std::vector<std::unique_ptr<Sequence>> finished;
  for (const Slice& slice : slices) {
    Sequence& sequence = *slice.sequence;
    if (sequence.aborted && sequence.steps_in_flight == 0) sequence.finish = FinishReason::kAborted;
    if (sequence.finish == FinishReason::kNone) continue;
    const auto place = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& one) { return one.get() == &sequence; });
    finished.push_back(std::move(*place));
    running_.erase(place);
    ReleaseBlocks(sequence);
    finished_ += sequence.finish == FinishReason::kAborted ? 0 : 1;
  }
  return finished;
}

}  // namespace pinion
