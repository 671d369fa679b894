#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The trials of one round in an order drawn anew from (seed, phase, round): every candidate once,
// the baseline (0) twice. The same on every call, so that a resumed round keeps its order.
std::vector<Slot> RoundOrder(const std::vector<int>& candidates, uint64_t seed, Phase phase,
                             int round);

// The seed of a round's prompts: another for every round, the same for all its trials.
uint64_t RoundSeed(uint64_t seed, Phase phase, int round);

// What has been spent of a budget, and what trials cost.
class Spending {
 public:
  explicit Spending(double budget_s) : budget_s_(budget_s) {}
  // `once_s`: the part that no other trial of the candidate will take again.
  void Add(int candidate, double seconds, double once_s = 0);

  void SpendRest() { spent_s_ = std::max(spent_s_, budget_s_); }  // in vain

  double spent_s() const { return spent_s_; }
  double left_s() const { return budget_s_ - spent_s_; }
  double budget_s() const { return budget_s_; }
  double mean_s() const;  // of one trial; 0 where none was run
  // What a trial of the candidate will take: the mean of its own, or of all where it has none.
  double Expected(int candidate) const;
  // Of one round of these, the baseline twice.
  double RoundSeconds(const std::vector<int>& candidates) const;

 private:
  struct Sum {
    double seconds = 0;
    int trials = 0;
  };
  double budget_s_, spent_s_ = 0;
  Sum all_;
  std::map<int, Sum> by_candidate_;
};

// A race among many took 2 to 5 rounds in replays.
inline constexpr int kUsualRounds = 5;

// More tokens would say little more than more rounds.
inline constexpr double kMostTrialSeconds = 120;

// How long a trial may take: what the definition says, else what lets a race of the usual length
// and its confirmation fit 80 % of the budget, from 8 s (below that, start and warm-up are most of
// a trial) to kMostTrialSeconds. `contestants`: trials of a whole round.
double TrialLimitSeconds(const Definition& definition, size_t contestants);

}  // namespace pinion::harness
