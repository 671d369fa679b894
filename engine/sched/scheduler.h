#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "engine/base/ring.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/block_tables.h"
#include "engine/kv/state_pool.h"
#include "engine/sched/prefill_order.h"
#include "engine/sched/sequence.h"
#include "engine/sched/step_times.h"

namespace pinion {

struct SchedulerOptions {
  size_t max_num_batched_tokens = 2048;    // >= 1: tokens computed in one step
  size_t max_num_seqs = 128;               // >= 1: sequences running at once
  size_t max_model_len = 2048;             // prompt + output
  StepBound bound;                         // of steps, if there are StepTimes
  std::vector<Reach> reaches = {Reach{}};  // of the block tables of a sequence
  size_t steps_in_flight = 1;              // >= 1: between Schedule and Commit at once
};

// One sequence's share of a step: its tokens [first, first + count) are computed. If that includes
// its last token (`samples`), the step yields the next one. Score sequences never sample: their
// slices yield the logits of all positions.
struct Slice {
  Sequence* sequence = nullptr;
  size_t first = 0, count = 0;
  bool samples = false;
  // Places of kept states, or -1: the one to begin with, and the one to copy the state behind the
  // slice to.
  int32_t begins_from = -1, keeps_in = -1;
};

struct SchedulerStats {
  size_t waiting = 0, running = 0;
  uint64_t preemptions = 0, finished = 0;
  uint64_t steps_over_bound = 0;  // steps with prompts that took longer than they were allowed
  uint64_t bounded_steps = 0;     // steps with prompts that had a bound
  double bound_s = 0;             // of the last of them
};

// Turns requests into steps: continuous batching, running decodes first, then prefill chunks while
// the step's token budget and the blocks last. Sequences have an order: by priority (lower first),
// then by arrival. If a running sequence needs a block and none is left, the last running one is
// preempted: its blocks are released and it waits, at its place in the order, to be recomputed
// (prompt and output so far). If the last itself needs a block, it keeps those it has and pauses
// until one before it ends or takes them.
//
// Without StepTimes prompts are prefilled in order, and a step that already computes at full speed
// admits no further one, so that the first tokens of a burst come one after another, not all at its
// end. With StepTimes the prefill part of a step is cut so that the step ends within a bound, and
// PrefillOrder shares it.
//
// Blocks that no later token of a sequence sees are given back after each step. A prompt begins
// behind a cached prefix if the cache still has the blocks that the next token sees.
//
// With a StatePool a prompt can only begin behind a prefix whose state is kept. It keeps the state
// behind its own last full block, and that of the last block that it found in the cache without a
// state, at which prompts part: a slice ends there. Neither, if it would save less than
// kLeastKeptBlocks; one that is handed over needs the former in any case.
//
// The first sequence always progresses: it may take every block, and Add has checked that it fits.
//
// Several steps may be in flight. They are computed one after the other, so that blocks, states and
// places that a later step takes over, or reads, are as the earlier ones leave them: their slices
// count as computed from the next Schedule on. A sequence whose next token is being computed waits
// for it; those that decode are shared evenly among the steps. None is preempted in flight: a
// sequence that needs its blocks pauses until it is back.
//
// Not thread-safe: the engine loop owns it.
class Scheduler {
 public:
  // A slice that ends early costs a step, which takes about as long as several tokens.
  static constexpr size_t kLeastKeptBlocks = 4;

  // times, clock, states: outlive the scheduler. A step is timed from the end of Schedule, and from
  // the Commit of the step before it, to its own Commit. states: of a model with recurrent layers
  // whose pool has prefix_caching; else null.
  Scheduler(const SchedulerOptions& options, BlockPool& pool, StepTimes* times = nullptr,
            const Clock& clock = kMachineClock, StatePool* states = nullptr);

  // Refuses (kUsage) a sequence that can never run: an empty prompt, prompt + 1 > max_model_len
  // (score: prompt > max_model_len), more blocks than the pool has, parameters out of range. Lowers
  // max_tokens if prompt + max_tokens exceeds max_model_len.
  Status Check(Sequence& sequence) const;
  // The same; one that can run waits for its turn from now on.
  Status Add(std::unique_ptr<Sequence> sequence);
  // Removes a sequence, waiting or running; returns it with finish = kAborted, or null if it is
  // unknown or in flight: the Commit that ends this returns it then.
  std::unique_ptr<Sequence> Abort(uint64_t id);

  bool idle() const;  // nothing waiting, nothing running

  // The next step; empty if idle, or if all that could run is in flight, and then it does not count
  // as a step. Blocks for all its tokens are allocated. The sequences it points to live until
  // Commit or Abort returns them. Their tables are those of the step until the next call of the
  // scheduler; the slices stay until their Commit, which is called exactly once for each step, in
  // order, after running it. Not if as many steps as options allow are in flight.
  const std::vector<Slice>& Schedule();
  // Into how many parts the newest step is cut for those that compute it; 1 unless it is said.
  void CutNewest(size_t parts) { open_.newest().parts = parts; }

  // Takes the results of the oldest step in flight: one token for every slice with `samples`, in
  // order, and, unless `following` is empty, the tokens that a grammar forces behind each of them
  // (Sequence::jumped); forced tokens behind an end are dropped. Appends tokens, advances
  // `computed`, publishes full blocks, sets `finish` (EOS and stop ids -> kStop, unless ignored or
  // before min_tokens; max_tokens or the model's length -> kLength; score sequences finish with
  // kLength once all is computed). A sequence that was aborted in flight takes no token; one whose
  // token is below 0, as it could not be chosen, finishes with kAborted. Returns the sequences that
  // finished, removed from the scheduler, their blocks released, in the order of the step's slices.
  using Following = std::vector<std::span<const int32_t>>;
  std::vector<std::unique_ptr<Sequence>> Commit(const std::vector<int32_t>& sampled,
                                                const Following& following = {});

  SchedulerStats stats() const;

 private:
  size_t Lacking(const Sequence& sequence, size_t tokens) const;
  size_t Headroom() const;

  // The tokens that a running sequence has left to compute: the one that was chosen last, that one
  // and those that jumped behind it, or more of its prompt.
  enum class Left { kToken, kJumped, kPrompt };
  static Left LeftOf(const Sequence& sequence);
  size_t DecodesOfStep() const;
  size_t ScheduleRunning(Left left, size_t budget, size_t most);
  size_t Continue(size_t index, size_t most, size_t& budget, size_t already = 0);
  void AdmitInOrder(size_t budget);
  bool Admissible(const Sequence& sequence, size_t budget) const;
  std::optional<size_t> Admit(size_t index);
  bool TakePrefix(Sequence& sequence);
  size_t CachedBlocks(Sequence& sequence);
  size_t TakeState(Sequence& sequence, size_t found);
  void ReserveStates();
  bool MakeRoom(size_t index, size_t tokens, size_t& budget);
  void Push(Sequence& sequence, size_t already, size_t count);
  std::vector<Slice>::iterator FindSlice(const Sequence& sequence);
  void PreemptLast(size_t& budget);
  void ReleaseBlocks(Sequence& sequence);

  // With StepTimes: timed_steps.cc.
  void SharePrefill(size_t budget);
  std::vector<PrefillCandidate> Candidates() const;
  double Bound(const StepLoad& decodes) const;
  StepLoad LoadOfSlices() const;
  size_t Take(const PrefillShare& share, size_t already, size_t& budget);

  // A step in flight, with the causes of its time: its load, its bound (0: none) and its parts.
  struct OpenStep {
    std::vector<Slice> slices;
    StepLoad load;
    double bound_s = 0;
    size_t parts = 1;
    int64_t began_ns = 0;
  };
  double AddedSeconds(const OpenStep& step, int64_t before_ns) const;
  void Observe(const OpenStep& step);

  void AdvanceNewest();
  void SettleStates(const std::vector<Slice>& slices);
  void Advance(const Slice& slice);
  void Append(Sequence& sequence, int32_t token, std::span<const int32_t> following);
  FinishReason FinishOf(const Sequence& sequence) const;
  void TakeTokens(const std::vector<Slice>& slices, const std::vector<int32_t>& sampled,
                  const Following& following);
  std::vector<std::unique_ptr<Sequence>> RemoveFinished(const std::vector<Slice>& slices);

  SchedulerOptions options_;
  BlockPool& pool_;
  BlockTables tables_;
  StepTimes* times_;
  const Clock& clock_;
  StatePool* states_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // in order
  std::vector<std::unique_ptr<Sequence>> running_;  // in order
  std::vector<int32_t> free_places_;                // the lowest last, at first
  Ring<OpenStep> open_;
  bool newest_is_computed_ = true;  // the newest step in flight counts as computed, or none is
  std::vector<Slice> slices_;       // of the step that is being made
  bool step_preempted_ = false;     // this step took blocks away from a running sequence
  size_t prefill_rows_ = 0;         // of this step
  uint64_t last_number_ = 0, preemptions_ = 0, finished_ = 0;

  StepLoad load_;                          // of this step
  double bound_s_ = 0, last_bound_s_ = 0;  // of this step (0: none); of the last that had one
  double credit_s_ = 0;
  uint64_t bounded_steps_ = 0;
  int64_t committed_ns_ = 0;       // when the last step was
  int steps_without_prefill_ = 0;  // in a row, though prompts wait for one
  uint64_t steps_over_bound_ = 0;
};

}  // namespace pinion
