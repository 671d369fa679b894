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
// How many rows tokens that jumped share in a bounded step: two of the longest runs.
constexpr size_t kJumpedRows = 64;

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

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
      states_(states) {
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
  CHECK(!in_step_) << "sequence " << id << " aborted inside a step";
  const auto take = [id](auto& queue) -> std::unique_ptr<Sequence> {
    const auto found = std::find_if(queue.begin(), queue.end(),
                                    [id](const auto& sequence) { return sequence->id == id; });
    if (found == queue.end()) return nullptr;
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
  CHECK(!in_step_) << "Schedule called twice without Commit";
  slices_.clear();
  step_preempted_ = false;
  size_t budget = ScheduleRunning(Left::kToken, options_.max_num_batched_tokens);
  const size_t share = times_ ? std::min(budget, kJumpedRows) : budget;
  budget -= share - ScheduleRunning(Left::kJumped, share);
  prefill_rows_ = 0;
  if (times_) {
    SharePrefill(budget);
  } else {
    budget = ScheduleRunning(Left::kPrompt, budget);
    // A sequence preempted in this step is now in the queue: admitting it would take back the very
    // blocks it was preempted for.
    if (!step_preempted_) AdmitInOrder(budget);
  }
  CHECK(!slices_.empty() || idle())
      << waiting_.size() << " waiting, " << running_.size() << " running, none can continue";
  if (states_) ReserveStates();
  in_step_ = !slices_.empty();
  if (times_) began_ns_ = clock_.NowNs();
  return slices_;
}

Scheduler::Left Scheduler::LeftOf(const Sequence& sequence) {
  if (sequence.left() <= 1) return Left::kToken;
  return sequence.decodes() ? Left::kJumped : Left::kPrompt;
}

// Schedules running sequences that have this left; returns the budget that is left. Single tokens
// go first, so that neither a long prefill, which can be cut into chunks, nor many tokens that
// jumped at once delay the next token of a sequence that is already answering.
size_t Scheduler::ScheduleRunning(Left left, size_t budget) {
  for (size_t i = 0; i < running_.size() && budget > 0; ++i)
    if (LeftOf(*running_[i]) == left) Continue(i, running_[i]->left(), budget);
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
    // Only the last gets here. It uses its own and the free blocks, or pauses for this step:
    // preempting one before it would break the promise that the first progresses.
    count = tables_.Fitting(sequence.tables, first, count);
  }
  if (count == 0) return 0;
  Push(sequence, already, count);
  budget -= count;
  return count;
}

// Preempts sequences behind running_[index] until there are blocks for its first `tokens` tokens;
// false if preempting all of them was not enough.
bool Scheduler::MakeRoom(size_t index, size_t tokens, size_t& budget) {
  while (tables_.Short(running_[index]->tables, tokens) > pool_.available()) {
    if (running_.size() == index + 1) return false;
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
// delay.
bool Scheduler::Admissible(const Sequence& sequence, size_t budget) const {
  return running_.size() < options_.max_num_seqs &&
         (!sequence.whole || sequence.tokens.size() <= budget) &&
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

// ---- A step's results -----------------------------------------------------------------------

std::vector<std::unique_ptr<Sequence>> Scheduler::Commit(const std::vector<int32_t>& sampled,
                                                         const Following& following) {
  CHECK(following.empty() || following.size() == sampled.size());
  size_t next = 0;
  if (states_) SettleStates();
  for (const Slice& slice : slices_) {
    Advance(slice);
    if (!slice.samples) continue;
    CHECK(next < sampled.size()) << "only " << sampled.size()
                                 << " tokens for the slices that sample";
    Append(*slice.sequence, sampled[next],
           following.empty() ? std::span<const int32_t>() : following[next]);
    ++next;
  }
  if (times_) Observe();
  CHECK(next == sampled.size()) << sampled.size() << " tokens for " << next << " slices";
  auto finished = RemoveFinished();
  slices_.clear();
  in_step_ = false;
  return finished;
}

// Marks the slice as computed, publishes the blocks that it filled, and drops those that no later
// token sees.
void Scheduler::Advance(const Slice& slice) {
  Sequence& sequence = *slice.sequence;
  const size_t full_before = sequence.computed / pool_.block_tokens();
  sequence.computed = slice.first + slice.count;
  if (sequence.rates_prompt()) sequence.scored = std::max(sequence.scored, sequence.computed);
  if (sequence.score && sequence.computed == sequence.tokens.size())
    sequence.finish = FinishReason::kLength;
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

std::vector<std::unique_ptr<Sequence>> Scheduler::RemoveFinished() {
  std::vector<std::unique_ptr<Sequence>> finished;
  for (const Slice& slice : slices_) {
    if (slice.sequence->finish == FinishReason::kNone) continue;
    const auto place = std::find_if(running_.begin(), running_.end(), [&](const auto& sequence) {
      return sequence.get() == slice.sequence;
    });
    finished.push_back(std::move(*place));
    running_.erase(place);
    ReleaseBlocks(*finished.back());
    ++finished_;
  }
  return finished;
}

}  // namespace pinion
