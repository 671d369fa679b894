#include "engine/sched/scheduler.h"

#include <algorithm>

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

// With this many tokens a step computes at full speed: four times as many take four times as long
// (bfloat16, int8 and mixture-of-experts layers within 5 %, int4 ones within 10 %; measured with
// `pinion bench --max-num-batched-tokens`). Admitting another prompt then gains no throughput and
// only delays the first tokens of the prompts already in the step.
constexpr size_t kFullSpeedTokens = 512;

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Fills `hashes` up to the first `blocks` blocks of the sequence's tokens.
void HashBlocks(Sequence& sequence, size_t blocks, size_t block_tokens) {
  const std::span<const int32_t> tokens = sequence.tokens;
  for (size_t i = sequence.hashes.size(); i < blocks; ++i) {
    const BlockHash parent = i == 0 ? BlockHash{} : sequence.hashes[i - 1];
    sequence.hashes.push_back(HashBlock(parent, tokens.subspan(i * block_tokens, block_tokens)));
  }
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool& pool)
    : options_(options), pool_(pool) {
  CHECK(options.max_num_batched_tokens > 0 && options.max_num_seqs > 0);
}

size_t Scheduler::BlocksFor(size_t tokens) const {
  return (tokens + pool_.block_tokens() - 1) / pool_.block_tokens();
}

// Blocks that a sequence still needs before its first `tokens` tokens can be computed.
size_t Scheduler::BlocksShort(const Sequence& sequence, size_t tokens) const {
  const size_t needed = BlocksFor(tokens);
  return needed > sequence.block_table.size() ? needed - sequence.block_table.size() : 0;
}

// ---- Adding and aborting -----------------------------------------------------------------------

Status Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  const size_t prompt = sequence->tokens.size(), length = options_.max_model_len;
  if (prompt == 0) return Fail(ErrorCode::kUsage, "the prompt is empty; give at least one token");
  const size_t longest = sequence->score ? length : length - std::min<size_t>(length, 1);
  if (prompt > longest)
    return Fail(ErrorCode::kUsage, StrCat("the prompt has ", prompt, " tokens, but at most ",
                                          longest, " fit the model length of ", length,
                                          sequence->score ? "" : " and leave room for output",
                                          "; shorten it or raise --max-model-len"));
  SamplingParams& params = sequence->params;
  if (!sequence->score) {
    PINION_TRY(Validate(params));
    params.max_tokens =
        static_cast<int>(std::min<size_t>(static_cast<size_t>(params.max_tokens), length - prompt));
  }
  sequence->prompt_tokens = prompt;
  const size_t needed = BlocksFor(MostComputed(*sequence));
  if (needed > pool_.total())
    return Fail(ErrorCode::kUsage,
                StrCat("a prompt of ", prompt, " tokens",
                       sequence->score ? "" : StrCat(" with max_tokens ", params.max_tokens),
                       " needs ", needed, " KV blocks of ", pool_.block_tokens(),
                       " tokens, but the cache has ", pool_.total(), "; raise --kv-cache-space or ",
                       sequence->score ? "shorten the prompt" : "lower max_tokens"));
  if (sequence->arrived_ns == 0) sequence->arrived_ns = NowNs();
  waiting_.push_back(std::move(sequence));
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
  return {waiting_.size(), running_.size(), preemptions_, finished_};
}

// ---- A step's tokens ------------------------------------------------------------------------

const std::vector<Slice>& Scheduler::Schedule() {
  CHECK(!in_step_) << "Schedule called twice without Commit";
  slices_.clear();
  step_preempted_ = false;
  size_t budget = options_.max_num_batched_tokens;
  budget = ScheduleRunning(/*decodes=*/true, budget);
  budget = ScheduleRunning(/*decodes=*/false, budget);
  // A sequence preempted in this step is now at the head of the queue: admitting it would take back
  // the very blocks it was preempted for.
  if (!step_preempted_) Admit(budget);
  CHECK(!slices_.empty() || idle())
      << waiting_.size() << " waiting, " << running_.size() << " running, none can continue";
  in_step_ = !slices_.empty();
  return slices_;
}

// Schedules running sequences that have exactly one token to compute (`decodes`), or else those
// with more; returns the budget that is left. Decodes go first so that a long prefill, which can be
// cut into chunks, never delays the next token of a sequence that is already answering.
size_t Scheduler::ScheduleRunning(bool decodes, size_t budget) {
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    Sequence& sequence = *running_[i];
    const size_t left = sequence.tokens.size() - sequence.computed;
    if ((left == 1) != decodes) continue;
    size_t count = std::min(left, budget);
    if (!MakeRoom(i, sequence.computed + count, budget)) {
      // Only the youngest gets here. It uses its own and the free blocks, or pauses for this step:
      // preempting an older sequence for it would break the promise that the oldest progresses.
      const size_t room = (sequence.block_table.size() + pool_.available()) * pool_.block_tokens();
      count = std::min(count, room - sequence.computed);
      if (count == 0) continue;
    }
    Push(sequence, count);
    budget -= count;
  }
  return budget;
}

// Preempts sequences younger than running_[index] until there are blocks for its first `tokens`
// tokens; false if preempting all of them was not enough.
bool Scheduler::MakeRoom(size_t index, size_t tokens, size_t& budget) {
  while (BlocksShort(*running_[index], tokens) > pool_.available()) {
    if (running_.size() == index + 1) return false;
    PreemptYoungest(budget);
  }
  return true;
}

void Scheduler::PreemptYoungest(size_t& budget) {
  std::unique_ptr<Sequence> victim = std::move(running_.back());
  running_.pop_back();
  const auto slice = std::find_if(slices_.begin(), slices_.end(),
                                  [&](const Slice& s) { return s.sequence == victim.get(); });
  // Already scheduled in this step: its tokens are free for others again.
  if (slice != slices_.end()) {
    budget += slice->count;
    slices_.erase(slice);
  }
  ReleaseBlocks(*victim);
  victim->computed = 0;
  ++victim->preemptions;
  ++preemptions_;
  step_preempted_ = true;
  waiting_.push_front(std::move(victim));
}

// Admits waiting sequences in order of arrival while budget, max_num_seqs and blocks allow and the
// step is not yet at full speed. Stops at the first that does not fit: overtaking could starve it.
void Scheduler::Admit(size_t budget) {
  while (budget > 0 && !waiting_.empty() && running_.size() < options_.max_num_seqs) {
    Sequence& sequence = *waiting_.front();
    // Score requests are exempt from the limit: they have no first token to delay.
    if (!sequence.score && options_.max_num_batched_tokens - budget >= kFullSpeedTokens) break;
    if (!TakePrefix(sequence)) break;
    if (sequence.scheduled_ns == 0) sequence.scheduled_ns = NowNs();
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const size_t count = std::min(sequence.tokens.size() - sequence.computed, budget);
    Push(sequence, count);
    budget -= count;
  }
}

// Takes the sequence's leading blocks from the prefix cache, but never all of its tokens: the last
// one must be computed for its logits. False, with nothing taken, if the other tokens do not fit.
bool Scheduler::TakePrefix(Sequence& sequence) {
  const size_t block_tokens = pool_.block_tokens(), tokens = sequence.tokens.size();
  if (pool_.prefix_caching() && !sequence.score) {
    const size_t most = (tokens - 1) / block_tokens;
    HashBlocks(sequence, most, block_tokens);
    while (sequence.block_table.size() < most) {
      const auto block = pool_.Reuse(sequence.hashes[sequence.block_table.size()]);
      if (!block) break;
      sequence.block_table.push_back(*block);
    }
  }
  if (BlocksShort(sequence, tokens) + Headroom() > pool_.available()) {
    ReleaseBlocks(sequence);
    return false;
  }
  sequence.computed = sequence.block_table.size() * block_tokens;
  if (sequence.preemptions == 0 && pool_.prefix_caching() && !sequence.score) {
    // After a preemption a sequence finds its own blocks again; that would inflate the hit rate.
    sequence.cached_prompt_tokens = sequence.computed;
    pool_.stats().prefix_query_tokens += sequence.prompt_tokens;
    pool_.stats().prefix_hit_tokens += sequence.computed;
  }
  return true;
}

// Blocks to keep free at admission: one for every running sequence that will still need one. A
// sequence admitted into the last blocks would be preempted within block_tokens steps and its
// prefill wasted. 0 if nothing runs, so that the head of the queue always gets in.
size_t Scheduler::Headroom() const {
  return static_cast<size_t>(
      std::count_if(running_.begin(), running_.end(), [this](const auto& sequence) {
        return BlocksShort(*sequence, MostComputed(*sequence)) > 0;
      }));
}

void Scheduler::Push(Sequence& sequence, size_t count) {
  const size_t first = sequence.computed, end = first + count;
  Grow(sequence, end);
  slices_.push_back({&sequence, first, count, end == sequence.tokens.size() && !sequence.score});
}

void Scheduler::Grow(Sequence& sequence, size_t tokens) {
  for (size_t missing = BlocksShort(sequence, tokens); missing > 0; --missing) {
    std::vector<int32_t>& table = sequence.block_table;
    const auto block =
        pool_.Allocate(table.empty() ? std::nullopt : std::optional<int32_t>(table.back()));
    CHECK(block) << "the pool had fewer blocks than available()";
    table.push_back(*block);
  }
}

// Last to first: the pool evicts in order of release, so a prefix outlives its continuations.
void Scheduler::ReleaseBlocks(Sequence& sequence) {
  while (!sequence.block_table.empty()) {
    pool_.Release(sequence.block_table.back());
    sequence.block_table.pop_back();
  }
}

// ---- A step's results -----------------------------------------------------------------------

std::vector<std::unique_ptr<Sequence>> Scheduler::Commit(const std::vector<int32_t>& sampled) {
  size_t next = 0;
  for (const Slice& slice : slices_) {
    Advance(slice);
    if (!slice.samples) continue;
    CHECK(next < sampled.size()) << "only " << sampled.size()
                                 << " tokens for the slices that sample";
    Append(*slice.sequence, sampled[next++]);
  }
  CHECK(next == sampled.size()) << sampled.size() << " tokens for " << next << " slices";
  auto finished = RemoveFinished();
  slices_.clear();
  in_step_ = false;
  return finished;
}

// Marks the slice as computed and publishes the blocks that it filled.
void Scheduler::Advance(const Slice& slice) {
  Sequence& sequence = *slice.sequence;
  const size_t full_before = sequence.computed / pool_.block_tokens();
  sequence.computed = slice.first + slice.count;
  if (sequence.score) {
    sequence.scored = std::max(sequence.scored, sequence.computed);
    if (sequence.computed == sequence.tokens.size()) sequence.finish = FinishReason::kLength;
  }
  if (!pool_.prefix_caching()) return;
  const size_t full = sequence.computed / pool_.block_tokens();
  HashBlocks(sequence, full, pool_.block_tokens());
  for (size_t i = full_before; i < full; ++i)
    pool_.Publish(sequence.block_table[i], sequence.hashes[i]);
}

void Scheduler::Append(Sequence& sequence, int32_t token) {
  sequence.tokens.push_back(token);
  sequence.finish = FinishOf(sequence);
}

FinishReason Scheduler::FinishOf(const Sequence& sequence) const {
  const SamplingParams& params = sequence.params;
  const int32_t token = sequence.tokens.back();
  const size_t output = sequence.output_tokens();
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
