#include "engine/sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// The most tokens whose KV a sequence can need. Its last output token is never computed, because
// no token follows it.
size_t MostComputed(const Sequence& sequence) {
  if (sequence.score) return sequence.prompt_tokens;
  return sequence.prompt_tokens + static_cast<size_t>(sequence.params.max_tokens) - 1;
}

// With this many rows of prompts a step computes at full speed: four times as many take four times
// as long (bfloat16, int8 and mixture-of-experts layers within 5 %, int4 ones within 10 %; measured
// with `pinion bench --max-num-batched-tokens`). Admitting another prompt then gains no throughput
// and only delays the first tokens of the prompts already in the step.
constexpr size_t kFullSpeedRows = 512;
// Rows of an encoder's step of which projections and the MLP's inputs, about 20 KiB a row of a
// small model, stay in L3 on their way from one kernel to the next (README).
constexpr size_t kRowsInCache = 1024;
// How many rows tokens that jumped share in a bounded step: two of the longest runs.
constexpr size_t kJumpedRows = 64;

size_t CeilDiv(size_t value, size_t step) { return (value + step - 1) / step; }

// Whether a running sequence has tokens that no step in flight computes, and is to go on.
bool CanGoOn(const Sequence& sequence) { return sequence.left() > 0 && !sequence.aborted; }

// Puts the sequence at its place in a queue that is in order; returns its index.
template <typename Queue>
size_t Insert(std::unique_ptr<Sequence> sequence, Queue& queue) {
  const auto place =
      std::upper_bound(queue.begin(), queue.end(), sequence,
                       [](const auto& a, const auto& b) { return ComesBefore(*a, *b); });
  const auto at = queue.insert(place, std::move(sequence));
  return static_cast<size_t>(at - queue.begin());
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool& pool, StepTimes* times,
                     const Clock& clock, StatePool* states)
    : options_(options),
      pool_(pool),
      tables_(pool, options.reaches),
      times_(times),
      clock_(clock),
      states_(states),
      open_(options.steps_in_flight) {
  CHECK(!states || pool.prefix_caching());
  CHECK(options.max_num_batched_tokens > 0 && options.max_num_seqs > 0);
  for (size_t place = options.max_num_seqs; place-- > 0;)
    free_places_.push_back(static_cast<int32_t>(place));
}

// ---- Adding and aborting -----------------------------------------------------------------------

Status Scheduler::Check(Sequence& sequence) const {
  const size_t prompt = sequence.tokens.size(), length = options_.max_model_len;
  if (prompt == 0) return Fail(ErrorCode::kUsage, "the prompt is empty; give at least one token");
  const size_t longest = sequence.score ? length : length - std::min<size_t>(length, 1);
  if (prompt > longest)
    return Fail(ErrorCode::kUsage, StrCat("the prompt has ", prompt, " tokens, but at most ",
                                          longest, " fit the model length of ", length,
                                          sequence.score ? "" : " and leave room for output",
                                          "; shorten it or raise --max-model-len"));
  SamplingParams& params = sequence.params;
  if (!sequence.score) {
    PINION_TRY(Validate(params));
    params.max_tokens =
        static_cast<int>(std::min<size_t>(static_cast<size_t>(params.max_tokens), length - prompt));
  }
  sequence.prompt_tokens = prompt;
  const size_t needed = tables_.Most(MostComputed(sequence), 1);
  if (needed > pool_.total())
    return Fail(ErrorCode::kUsage,
                StrCat("a prompt of ", prompt, " tokens",
                       sequence.score ? "" : StrCat(" with max_tokens ", params.max_tokens),
                       " needs ", needed, " KV blocks of ", pool_.block_tokens(),
                       " tokens, but the cache has ", pool_.total(), "; raise --kv-cache-space or ",
                       sequence.score ? "shorten the prompt" : "lower max_tokens"));
  return {};
}

Status Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  PINION_TRY(Check(*sequence));
  sequence->tables.resize(tables_.count());
  if (sequence->arrived_ns == 0) sequence->arrived_ns = clock_.NowNs();
  sequence->number = ++last_number_;
  Insert(std::move(sequence), waiting_);
  return {};
}

std::unique_ptr<Sequence> Scheduler::Abort(uint64_t id) {
  const auto take = [id](auto& queue) -> std::unique_ptr<Sequence> {
    const auto found = std::find_if(queue.begin(), queue.end(), [id](const auto& sequence) {
      return sequence->id == id && !sequence->aborted;
    });
    if (found == queue.end()) return nullptr;
    (*found)->aborted = (*found)->steps_in_flight > 0;
    if ((*found)->aborted) return nullptr;
    std::unique_ptr<Sequence> taken = std::move(*found);
    queue.erase(found);
    return taken;
  };
  std::unique_ptr<Sequence> sequence = take(waiting_);
  if (!sequence) sequence = take(running_);
  if (!sequence) return nullptr;
  ReleaseBlocks(*sequence);
  sequence->finish = FinishReason::kAborted;
  return sequence;
}

bool Scheduler::idle() const { return waiting_.empty() && running_.empty(); }

SchedulerStats Scheduler::stats() const {
  return {waiting_.size(),   running_.size(), preemptions_, finished_,
          steps_over_bound_, bounded_steps_,  last_bound_s_};
}

// ---- A step's tokens ------------------------------------------------------------------------

const std::vector<Slice>& Scheduler::Schedule() {
  CHECK(!open_.full()) << "Schedule called for a step too many without Commit";
  AdvanceNewest();
  slices_.clear();
  step_preempted_ = false;
  const size_t decodes = DecodesOfStep();
  size_t budget = ScheduleRunning(Left::kToken, options_.max_num_batched_tokens, decodes);
  const size_t share = times_ ? std::min(budget, kJumpedRows) : budget;
  budget -= share - ScheduleRunning(Left::kJumped, share, decodes);
  prefill_rows_ = 0;
  if (times_) {
    SharePrefill(budget);
  } else {
    budget = ScheduleRunning(Left::kPrompt, budget, SIZE_MAX);
    // A sequence preempted in this step is now in the queue: admitting it would take back the very
    // blocks it was preempted for.
    if (!step_preempted_) AdmitInOrder(budget);
  }
  CHECK(!slices_.empty() || idle() || !open_.empty())
      << waiting_.size() << " waiting, " << running_.size() << " running, none can continue";
  if (slices_.empty()) return slices_;
  if (states_) ReserveStates();
  for (const Slice& slice : slices_) ++slice.sequence->steps_in_flight;
  OpenStep& step = open_.Push();
  step.slices.swap(slices_);
  step.load = load_;
  step.bound_s = bound_s_;
  step.parts = 1;
  if (times_) step.began_ns = clock_.NowNs();
  newest_is_computed_ = false;
  return step.slices;
}

// How many of the sequences that decode the step takes: they are shared evenly among the steps that
// may be in flight, and those that are ready among the steps that are free.
size_t Scheduler::DecodesOfStep() const {
  size_t decoding = 0, ready = 0;
  for (const auto& sequence : running_) {
    if (!sequence->decodes()) continue;
    ++decoding;
    if (CanGoOn(*sequence)) ++ready;
  }
  const size_t free = open_.most() - open_.size();
  return std::min(CeilDiv(decoding, open_.most()), CeilDiv(ready, free));
}

Scheduler::Left Scheduler::LeftOf(const Sequence& sequence) {
  if (sequence.left() <= 1) return Left::kToken;
  return sequence.decodes() ? Left::kJumped : Left::kPrompt;
}

// Schedules running sequences that have this left, while the step has less than `most` slices;
// returns the budget that is left. Single tokens go first, so that neither a long prefill, which
// can be cut into chunks, nor many tokens that jumped at once delay the next token of a sequence
// that is already answering.
size_t Scheduler::ScheduleRunning(Left left, size_t budget, size_t most) {
  for (size_t i = 0; i < running_.size() && budget > 0 && slices_.size() < most; ++i)
    if (CanGoOn(*running_[i]) && LeftOf(*running_[i]) == left)
      Continue(i, running_[i]->left(), budget);
  return budget;
}

// Adds up to `most` of the tokens that running_[index] has left to the step, as many as the budget
// and the blocks last; returns their number. `already`: those that the step computes of it so far.
size_t Scheduler::Continue(size_t index, size_t most, size_t& budget, size_t already) {
  Sequence& sequence = *running_[index];
  const size_t first = sequence.computed + already;
  size_t count = std::min({most, sequence.tokens.size() - first, budget});
  for (const size_t kept : sequence.keeps_at) {
    if (already > 0 && kept == first) return 0;  // the step's slice ends here
    if (kept > first) count = std::min(count, kept - first);
  }
  if (!MakeRoom(index, first + count, budget)) {
    // The last gets here, or one that would have to preempt the last in flight. It uses its own and
    // the free blocks, or pauses for this step: preempting one before it would break the promise
    // that the first progresses.
    count = tables_.Fitting(sequence.tables, first, count);
  }
  if (count == 0) return 0;
  Push(sequence, already, count);
  budget -= count;
  return count;
}

// Preempts sequences behind running_[index] until there are blocks for its first `tokens` tokens;
// false if preempting all of them was not enough, up to the last one in flight. Those behind that
// one are not spared, although they alone may not suffice: they come last in order, so they would
// be the first to go once it is back, and meanwhile running_[index] goes on with the rest.
bool Scheduler::MakeRoom(size_t index, size_t tokens, size_t& budget) {
  while (tables_.Short(running_[index]->tables, tokens) > pool_.available()) {
    if (running_.size() == index + 1 || running_.back()->steps_in_flight > 0) return false;
    PreemptLast(budget);
  }
  return true;
}

void Scheduler::PreemptLast(size_t& budget) {
  std::unique_ptr<Sequence> victim = std::move(running_.back());
  running_.pop_back();
  const auto slice = FindSlice(*victim);
  // Already scheduled in this step: its tokens are free for others again.
  if (slice != slices_.end()) {
    budget += slice->count;
    slices_.erase(slice);
  }
  ReleaseBlocks(*victim);
  victim->computed = 0;
  victim->served_s = 0;
  ++victim->preemptions;
  ++preemptions_;
  step_preempted_ = true;
  Insert(std::move(victim), waiting_);
}

// Admits waiting sequences in order while budget, max_num_seqs and blocks allow and the step is not
// yet at full speed. Stops at the first that does not fit: overtaking could starve it.
void Scheduler::AdmitInOrder(size_t budget) {
  while (budget > 0 && !waiting_.empty() && Admissible(*waiting_.front(), budget)) {
    const auto index = Admit(0);
    if (!index) break;
    Continue(*index, budget, budget);
  }
}

// Whether a place is left and the step can do with another prompt, of which it has room for
// `budget` tokens. Score requests are exempt from the limit of rows: they have no first token to
// delay. Texts that are computed whole share a step up to kRowsInCache.
bool Scheduler::Admissible(const Sequence& sequence, size_t budget) const {
  const size_t tokens = sequence.tokens.size();
  return running_.size() < options_.max_num_seqs && (!sequence.whole || tokens <= budget) &&
         (!sequence.whole || prefill_rows_ == 0 || prefill_rows_ + tokens <= kRowsInCache) &&
         (sequence.score || prefill_rows_ < kFullSpeedRows);
}

// Lets waiting_[index] run if the blocks suffice; returns its index in running_.
std::optional<size_t> Scheduler::Admit(size_t index) {
  const auto at = waiting_.begin() + static_cast<ptrdiff_t>(index);
  if (!TakePrefix(**at)) return {};
  if ((*at)->scheduled_ns == 0) (*at)->scheduled_ns = clock_.NowNs();
  std::unique_ptr<Sequence> sequence = std::move(*at);
  waiting_.erase(at);
  CHECK(!free_places_.empty()) << running_.size() << " sequences run already";
  sequence->place = free_places_.back();
  free_places_.pop_back();
  return Insert(std::move(sequence), running_);
}

// Blocks that the sequence still needs before its first `tokens` tokens are computed.
size_t Scheduler::Lacking(const Sequence& sequence, size_t tokens) const {
  return tables_.Lacking(sequence.tables, sequence.computed, tokens,
                         options_.max_num_batched_tokens);
}

// Blocks to keep free at admission: those that running prompts still lack, and, for every running
// sequence that will need more for its output, the first one or what its next jump may take. A
// sequence admitted into the last blocks would be preempted within block_tokens steps and its
// prefill wasted.
size_t Scheduler::Headroom() const {
  size_t blocks = 0;
  for (const auto& sequence : running_) {
    const size_t tokens = sequence->tokens.size(), most = MostComputed(*sequence);
    const size_t soon = std::min(most, tokens + sequence->most_jumped);
    blocks += Lacking(*sequence, tokens);
    blocks += tables_.Growing(sequence->tables, sequence->computed, tokens, soon, most);
  }
  return blocks;
}

// Adds `count` tokens behind the `already` ones that the step has of the sequence.
void Scheduler::Push(Sequence& sequence, size_t already, size_t count) {
  const size_t first = sequence.computed, end = first + already + count;
  tables_.Grow(sequence.tables, end);
  prefill_rows_ += count;
  const Slice slice{&sequence, first, already + count,
                    end == sequence.tokens.size() && !sequence.score, sequence.begins_from};
  if (already == 0)
    slices_.push_back(slice);
  else
    *FindSlice(sequence) = slice;
}

std::vector<Slice>::iterator Scheduler::FindSlice(const Sequence& sequence) {
  return std::find_if(slices_.begin(), slices_.end(),
                      [&](const Slice& slice) { return slice.sequence == &sequence; });
}

// And its place, if it has one.
void Scheduler::ReleaseBlocks(Sequence& sequence) {
  if (sequence.place >= 0) free_places_.push_back(std::exchange(sequence.place, -1));
  if (sequence.begins_from >= 0) states_->Release(std::exchange(sequence.begins_from, -1));
  tables_.Release(sequence.tables);
}

}  // namespace pinion
