#pragma once

#include <cstdint>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// One trial to run.
struct Slot {
  int candidate = 0, copy = 0;
  bool operator==(const Slot&) const = default;
};

// The trials of one round in an order drawn anew from (seed, round, confirmation): every candidate
// once, the anchor (0) twice. The same on every call, so that a resumed round keeps its order.
std::vector<Slot> RoundOrder(const std::vector<int>& candidates, uint64_t seed, int round,
                             bool confirmation);

// The seed of a round's prompts: another for every round, the same for all its trials.
uint64_t RoundSeed(uint64_t seed, int round, bool confirmation);

// How much fits into a budget.
struct RoundPlan {
  int rounds = 0;       // of `wanted`, with those that are done
  double round_s = 0;   // what a round costs
  double left_s = 0;    // of the budget
  bool enough = false;  // for a verdict
  double enough_s = 0;  // the budget that a verdict would need
};

// `trials`: what is done so far; `contestants`: trials of a whole round from now on.
RoundPlan PlanRounds(const std::vector<TrialRow>& trials, size_t contestants, int rounds_done,
                     int wanted, double budget_s);

// How long a trial may take: what the definition says, else what lets all rounds of `contestants`
// trials fit 80 % of the budget (the rest confirms), from 8 s (below that, start and warm-up are
// most of a trial) to 120 s (more tokens would say little more than more rounds).
double TrialLimitSeconds(const Definition& definition, size_t contestants);

// Mean seconds of one trial; 0 where none was run.
double MeanTrialSeconds(const std::vector<TrialRow>& trials);

}  // namespace pinion::harness
