#include "engine/sched/scheduler.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// Tokens whose KV a sequence needs at most. Its last token is never computed: nothing follows it.
size_t MostComputed(const Sequence& sequence) {
  if (sequence.score) return sequence.prompt_tokens;
  return sequence.prompt_tokens + static_cast<size_t>(sequence.params.max_tokens) - 1;
}

// Tokens that bring a step to the arithmetic's full speed: four times as many take four times as
// long (bfloat16, int8 and mixture-of-experts layers within 5 %, int4 ones within 10 %; `pinion
// bench
// --max-num-batched-tokens`). A prompt beyond them would only keep the first tokens of those before
// it waiting.
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

// Blocks that a sequence lacks to have its first `tokens` tokens computed.
size_t Scheduler::BlocksShort(const Sequence& sequence, size_t tokens) const {
  const size_t needed = BlocksFor(tokens);
  return needed > sequence.block_table.size() ? needed - sequence.block_table.size() : 0;
}

// ---- Coming and going -----------------------------------------------------------------------

Status Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  const size_t prompt = sequence->tokens.size(), length = options_.max_model_len;
  if (prompt == 0) return Fail(ErrorCode::kUsage, "the prompt is empty: give at least one token");
  const size_t longest = sequence->score ? length : length - std::min<size_t>(length, 1);
  if (prompt > longest)
    return Fail(ErrorCode::kUsage, StrCat("the prompt has ", prompt, " tokens, at most ", longest,
                                          " fit the model length of ", length,
                                          sequence->score ? "" : " beside one new",
                                          ": shorten it or raise --max-model-len"));
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
                       " tokens, the cache has ", pool_.total(), ": raise --kv-cache-space or ",
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
  // What was just preempted must not come straight back for the blocks it gave.
  if (!step_preempted_) Admit(budget);
  CHECK(!slices_.empty() || idle())
      << waiting_.size() << " waiting, " << running_.size() << " running, none can go on";
  in_step_ = !slices_.empty();
  return slices_;
}

// Gives running sequences with one token to compute (`decodes`) or with more their share; returns
// the budget that is left.
size_t Scheduler::ScheduleRunning(bool decodes, size_t budget) {
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    Sequence& sequence = *running_[i];
    const size_t left = sequence.tokens.size() - sequence.computed;
    if ((left == 1) != decodes) continue;
    size_t count = std::min(left, budget);
    if (!MakeRoom(i, sequence.computed + count, budget)) {
      // The youngest takes what there is without hurting the others, or pauses.
      const size_t room = (sequence.block_table.size() + pool_.available()) * pool_.block_tokens();
      count = std::min(count, room - sequence.computed);
      if (count == 0) continue;
    }
    Push(sequence, count);
    budget -= count;
  }
  return budget;
}

// Preempts sequences younger than running_[index] until blocks for its first `tokens` tokens are
// there; false where preempting them all was not enough.
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

// Admits waiting sequences in order of arrival while the budget, the places and the blocks last and
// the step is short of full speed.
void Scheduler::Admit(size_t budget) {
  while (budget > 0 && !waiting_.empty() && running_.size() < options_.max_num_seqs) {
    Sequence& sequence = *waiting_.front();
    // Nobody waits for the first token of a text to be scored.
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
// one's logits are wanted. False, with nothing taken, where the rest of its tokens finds no room.
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
    // A sequence finding its own blocks again after a preemption is no hit of anybody's prefix.
    sequence.cached_prompt_tokens = sequence.computed;
    pool_.stats().prefix_query_tokens += sequence.prompt_tokens;
    pool_.stats().prefix_hit_tokens += sequence.computed;
  }
  return true;
}

// One block for every running sequence that will still need one: admitting into the last blocks
// would have the newcomer preempted within block_tokens steps, its prefill lost. 0 where nothing
// runs, so that the head of the queue always gets in.
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
    CHECK(block) << "the pool gave less than available()";
    table.push_back(*block);
  }
}

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
    CHECK(next < sampled.size()) << sampled.size() << " tokens for more slices that sample";
    Append(*slice.sequence, sampled[next++]);
  }
  CHECK(next == sampled.size()) << sampled.size() << " tokens for " << next << " slices";
  auto finished = RemoveFinished();
  slices_.clear();
  in_step_ = false;
  return finished;
}

// Counts the slice as computed and publishes the blocks that became full with it.
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
  sequence.finish = Ending(sequence);
}

FinishReason Scheduler::Ending(const Sequence& sequence) const {
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
