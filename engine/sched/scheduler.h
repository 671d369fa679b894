#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/base/result.h"
#include "engine/kv/block_pool.h"
#include "engine/sched/sequence.h"

namespace pinion {

struct SchedulerOptions {
  size_t max_num_batched_tokens = 2048;  // >= 1: tokens computed in one step
  size_t max_num_seqs = 128;             // >= 1: sequences running at once
  size_t max_model_len = 2048;           // prompt + output
};

// One sequence's share of a step: its tokens [first, first + count) are computed. If that includes
// its last token (`samples`), the step yields the next one. Score sequences never sample: their
// slices yield the logits of all positions.
struct Slice {
  Sequence* sequence = nullptr;
  size_t first = 0, count = 0;
  bool samples = false;
};

struct SchedulerStats {
  size_t waiting = 0, running = 0;
  uint64_t preemptions = 0, finished = 0;
};

// Turns requests into steps: continuous batching, running decodes first, then prefill chunks in
// order of arrival while the step's token budget and the blocks last. A step that already computes
// at full speed admits no further prompt, so that the first tokens of a burst come one after
// another, not all at its end. If a running sequence needs a block and none is left, the youngest
// running one is preempted: its blocks are released and it waits at the head of the queue to be
// recomputed (prompt and output so far). If the youngest itself needs a block, it keeps those it
// has and pauses until an older sequence ends or takes them.
//
// The oldest sequence always progresses: it may take every block, and Add has checked that it fits.
// Not thread-safe: the engine loop owns it.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockPool& pool);

  // Refuses (kUsage) a sequence that can never run: an empty prompt, prompt + 1 > max_model_len
  // (score: prompt > max_model_len), more blocks than the pool has, parameters out of range. Lowers
  // max_tokens if prompt + max_tokens exceeds max_model_len.
  Status Add(std::unique_ptr<Sequence> sequence);
  // Removes a sequence, waiting or running; returns it with finish = kAborted, or null if unknown.
  // Not between Schedule and Commit: its slice is being computed.
  std::unique_ptr<Sequence> Abort(uint64_t id);

  bool idle() const;  // nothing waiting, nothing running

  // The next step; empty if idle. Blocks for all its tokens are allocated. The sequences it points
  // to live until Commit or Abort returns them. Call Commit exactly once after running the step.
  const std::vector<Slice>& Schedule();

  // Takes the step's results: one token for every slice with `samples`, in order. Appends tokens,
  // advances `computed`, publishes full blocks, sets `finish` (EOS and stop ids -> kStop, unless
  // ignored or before min_tokens; max_tokens or the model's length -> kLength; score sequences
  // finish with kLength once all is computed).
  // Returns the sequences that finished, removed from the scheduler, their blocks released, in the
  // order of the step's slices.
  std::vector<std::unique_ptr<Sequence>> Commit(const std::vector<int32_t>& sampled);

  SchedulerStats stats() const;

 private:
  size_t BlocksFor(size_t tokens) const;
  size_t BlocksShort(const Sequence& sequence, size_t tokens) const;
  size_t Headroom() const;

  size_t ScheduleRunning(bool decodes, size_t budget);
  void Admit(size_t budget);
  bool TakePrefix(Sequence& sequence);
  bool MakeRoom(size_t index, size_t tokens, size_t& budget);
  void Grow(Sequence& sequence, size_t tokens);
  void Push(Sequence& sequence, size_t count);
  void PreemptYoungest(size_t& budget);
  void ReleaseBlocks(Sequence& sequence);

  void Advance(const Slice& slice);
  void Append(Sequence& sequence, int32_t token);
  FinishReason FinishOf(const Sequence& sequence) const;
  std::vector<std::unique_ptr<Sequence>> RemoveFinished();

  SchedulerOptions options_;
  BlockPool& pool_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of arrival
  std::vector<Slice> slices_;
  bool in_step_ = false;         // between Schedule and Commit
  bool step_preempted_ = false;  // this step took blocks away from a running sequence
  uint64_t preemptions_ = 0, finished_ = 0;
};

}  // namespace pinion
