#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/sched/sequence.h"
#include "engine/sched/step_times.h"

namespace pinion {

// A sequence with more than one token to compute.
struct PrefillCandidate {
  Sequence* sequence = nullptr;
  size_t first = 0, rows = 0;  // its first token to compute; their number
  double rest_s = 0;           // to compute them alone
  double delay_s = 0;          // how much longer it is here than it was served
  bool waiting = false;        // not running yet: needs a place and blocks for all its tokens

  // By how much it would have taken alone.
  double alone_s() const { return sequence->served_s + rest_s; }
  bool overdue() const { return delay_s > alone_s() / 8; }
};

// Rows of a step for one candidate.
struct PrefillShare {
  Sequence* sequence = nullptr;
  size_t rows = 0;
};

struct PrefillLimits {
  double until_s = 0;  // when the step shall end, counted from its beginning
  size_t rows = 0;     // that the step may still have
  bool must = false;   // the first share has at least a granule of rows, whatever the time
};

// Shares the prefill part of one step among the prompts. Order: priority, sequences that were
// preempted, least time remaining. So a short prompt overtakes a long one; lest it starves, a
// prompt delayed by more than an eighth of its time alone is overdue, and the oldest overdue one of
// the best priority has all but a sixteenth of the prefill time. Beside prompts of its own priority
// a prompt thus takes at most 1 + 1/8 + 1/15 (+ 1/32, see `credit_s`) of its time alone. A rule by
// age alone would do worse: a prompt of 16 tokens would wait for all of an aged one.
//
//   while (auto share = order.Next()) order.Took(first, rows);
class PrefillOrder {
 public:
  // decodes: the step's other work. credit_s: time that the others are owed for what an overdue
  // prompt got, kept from step to step, since a sixteenth of one step may be less than a granule;
  // at most 1/32 of the overdue prompt's time alone.
  PrefillOrder(std::vector<PrefillCandidate> candidates, const StepTimes& times,
               const StepLoad& decodes, const PrefillLimits& limits, double& credit_s);

  // The next share of the step; nullopt: the step is full. Call Took before the next call.
  std::optional<PrefillShare> Next();
  // The step computes rows [first, first + rows) of the last share: fewer than it names if blocks
  // ran out, beginning later if the cache had some, none if the sequence cannot go on now. If that
  // one was waiting, no other is admitted in this step: those behind it would need as much or, if
  // it is urgent, take the blocks that it waits for.
  void Took(size_t first, size_t rows);

 private:
  void EnterGroup();
  void Reserve();
  size_t Fitting(const PrefillCandidate& candidate, double until_s) const;

  std::vector<PrefillCandidate> order_;
  const StepTimes& times_;
  StepLoad load_;
  PrefillLimits limits_;
  double& credit_s_;

  size_t group_ = 0, next_ = 0, end_ = 0;  // the candidates of one priority; which of them is next
  std::optional<size_t> urgent_;           // of the group: the one that goes before the order
  double urgent_until_s_ = 0;              // leaves the rest of the step to the others
  bool urgent_turn_ = false, admits_ = true;
  size_t last_ = 0;  // share given by Next
};

}  // namespace pinion
