// The scheduler's steps if their times can be predicted.

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/sched/scheduler.h"

namespace pinion {
namespace {

// Decodes that take longer than the bound by themselves leave no time for prompts, which would wait
// for ever. Every so many steps prompts get the smallest chunk nevertheless.
constexpr int kMostStepsWithoutPrefill = 3;

}  // namespace

// Fills the rest of the step with prompts, running and waiting ones.
void Scheduler::SharePrefill(size_t budget) {
  const StepLoad decodes = LoadOfSlices();
  load_ = decodes;
  bound_s_ = 0;
  std::vector<PrefillCandidate> candidates = Candidates();
  if (candidates.empty()) return;
  bound_s_ = Bound(decodes);
  double credit_s = credit_s_;
  const bool must = slices_.empty() || steps_without_prefill_ == kMostStepsWithoutPrefill;
  PrefillOrder order(std::move(candidates), *times_, decodes,
                     {bound_s_ / times_->Margin(), budget, must}, credit_s);
  while (const auto share = order.Next()) {
    Sequence& sequence = *share->sequence;
    const auto slice = FindSlice(sequence);
    const size_t already = slice == slices_.end() ? 0 : slice->count;
    const size_t rows = Take(*share, already, budget);
    const size_t first = sequence.computed + already;  // Take may have found some in the cache
    if (rows > 0) sequence.served_s += times_->PrefillSeconds(first, rows);
    order.Took(first, rows);
  }
  if (slices_.empty()) return;  // no step: all that could run is in flight
  if (bound_s_ > 0) {
    last_bound_s_ = bound_s_;
    ++bounded_steps_;
  }
  credit_s_ = credit_s;
  steps_without_prefill_ =
      prefill_rows_ > 0 ? 0 : std::min(steps_without_prefill_ + 1, kMostStepsWithoutPrefill);
  load_ = LoadOfSlices();
}

// Running prompts and, if places are left, waiting ones. Choices of one prompt compute it one after
// the other, so that all but the first find it in the prefix cache.
std::vector<PrefillCandidate> Scheduler::Candidates() const {
  const int64_t now_ns = clock_.NowNs();
  std::vector<PrefillCandidate> candidates;
  std::unordered_set<uint64_t> groups;  // of which one computes the prompt
  const auto add = [&](Sequence& sequence, bool waiting) {
    const size_t rows = sequence.tokens.size() - sequence.computed;
    PrefillCandidate candidate{&sequence, sequence.computed, rows};
    candidate.rest_s = times_->PrefillSeconds(sequence.computed, rows);
    candidate.delay_s =
        static_cast<double>(now_ns - sequence.arrived_ns) * 1e-9 - sequence.served_s;
    candidate.waiting = waiting;
    candidates.push_back(candidate);
  };
  for (const auto& sequence : running_) {
    if (sequence->decodes() || sequence->aborted) continue;
    groups.insert(sequence->group);
    add(*sequence, false);
  }
  // After a preemption none is admitted: it would take back the blocks that are needed here.
  if (step_preempted_ || running_.size() >= options_.max_num_seqs) return candidates;
  for (const auto& sequence : waiting_) {
    const bool shares = pool_.prefix_caching() && !sequence->rates_prompt() &&
                        sequence->group != 0 && sequence->preemptions == 0 &&
                        sequence->tokens.size() > pool_.block_tokens();
    if (!shares || groups.insert(sequence->group).second) add(*sequence, true);
  }
  return candidates;
}

// How long the step may take. A prompt that is all there is has an upper limit too, however little
// it delays: an abort, or a request that arrives meanwhile, is seen after the step. With
// four times as many rows it was no faster (docs/speed.md), unless the limit was below full speed.
double Scheduler::Bound(const StepLoad& decodes) const {
  const StepBound& bound = options_.bound;
  const bool alone =
      decodes.rows == 0 && std::none_of(running_.begin(), running_.end(), [](const auto& sequence) {
        return sequence->steps_in_flight > 0 && sequence->decodes();
      });
  StepLoad full_speed = decodes;
  times_->Add(full_speed, 0, times_->full_speed_rows(), false);
  const double full_speed_s = times_->Seconds(full_speed) * times_->Margin();
  const double most_s =
      std::max(bound.most_s, std::min(full_speed_s, alone ? bound.slow_alone_s : bound.slow_s));
  if (alone) return most_s;
  const double decodes_s = std::min(times_->Seconds(decodes) * bound.per_decode, bound.most_s);
  return std::clamp(std::max(decodes_s, full_speed_s), bound.least_s, most_s);
}

StepLoad Scheduler::LoadOfSlices() const {
  StepLoad load;
  for (const Slice& slice : slices_) times_->Add(load, slice.first, slice.count, slice.samples);
  return load;
}

// Adds the share to the step, behind the `already` rows that it has of the sequence, as far as
// places, budget and blocks allow; returns its rows.
size_t Scheduler::Take(const PrefillShare& share, size_t already, size_t& budget) {
  const auto find = [&](const auto& queue) {
    return std::lower_bound(
        queue.begin(), queue.end(), *share.sequence,
        [](const auto& other, const Sequence& own) { return ComesBefore(*other, own); });
  };
  const auto running = find(running_);
  if (running != running_.end() && running->get() == share.sequence)
    return Continue(static_cast<size_t>(running - running_.begin()), share.rows, budget, already);
  // It waits, or has just been preempted.
  if (step_preempted_ || !Admissible(*share.sequence, SIZE_MAX)) return 0;
  const auto index = Admit(static_cast<size_t>(find(waiting_) - waiting_.begin()));
  return index ? Continue(*index, share.rows, budget) : 0;
}

// The time that the step adds to others in a full pipeline, which is the time of each stage for it.
// It had two ways to its end: through all stages, part by part, and through the last one behind the
// step before it, which ended at before_ns. A way that is not free takes longer, never less, so the
// shorter one tells. Alone in the pipeline a step of one part takes as many times longer as there
// are stages, and steps that decode are alone until enough sequences are there. Stages are taken to
// need equally long.
double Scheduler::AddedSeconds(const OpenStep& step, int64_t before_ns) const {
  const auto since = [&](int64_t ns) { return static_cast<double>(committed_ns_ - ns) * 1e-9; };
  const auto parts = static_cast<double>(step.parts);
  const double stretches = parts + static_cast<double>(open_.most() - 1);  // each of a part's time
  return std::min(since(step.began_ns) * parts / stretches, since(before_ns));
}

void Scheduler::Observe(const OpenStep& step) {
  const int64_t before_ns = std::exchange(committed_ns_, clock_.NowNs());
  const double seconds = AddedSeconds(step, before_ns);
  times_->Observe(step.load, seconds);
  if (step.bound_s > 0 && seconds > step.bound_s) ++steps_over_bound_;
}

}  // namespace pinion
