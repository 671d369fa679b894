#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The trials of one round in a random order drawn from (seed, phase, round): every candidate once,
// the baseline (0) so often. The same on every call, so that a resumed round keeps its order.
std::vector<Slot> RoundOrder(const std::vector<int>& candidates, uint64_t seed, Phase phase,
                             int round, int baseline_runs = 2);

// The seed of a round's prompts: different for every round, the same for all its trials.
uint64_t RoundSeed(uint64_t seed, Phase phase, int round);

// The time spent of a budget, and the expected cost of trials.
class Spending {
 public:
  explicit Spending(double budget_s, int baseline_runs = 2)
      : budget_s_(budget_s), baseline_runs_(baseline_runs) {}
  // `once_s`: the part of `seconds` that the candidate's other trials will not need.
  void Add(int candidate, double seconds, double once_s = 0);

  void SpendRest() { spent_s_ = std::max(spent_s_, budget_s_); }  // by a trial that was lost

  double spent_s() const { return spent_s_; }
  double left_s() const { return budget_s_ - spent_s_; }
  double mean_s() const;  // of one trial; 0 before the first
  // The expected time of a trial of the candidate: the mean of its own, or of all if it has none.
  double Expected(int candidate) const;
  // How many trials of the mean time `trials` more may take together: more than they are if trials
  // of one configuration differ, by kSpareErrors standard errors of their mean against that of the
  // trials so far.
  double AtMost(double trials) const;
  // The expected time of one round of these, among them the baseline so often.
  double RoundSeconds(const std::vector<int>& candidates) const;

 private:
  struct Sum {
    double seconds = 0, squares = 0;
    int trials = 0;
    double mean() const { return seconds / trials; }
  };
  double Spread() const;  // standard deviation of a configuration's trials, of their mean
  double budget_s_, spent_s_ = 0;
  int baseline_runs_;  // in a round
  Sum all_;
  std::map<int, Sum> by_candidate_;
};

// In replays a race among many took 2 to 5 rounds.
inline constexpr int kUsualRounds = 5;

// Beyond this, more rounds improve an estimate more than longer trials.
inline constexpr double kMostTrialSeconds = 120;

// The time limit of a trial: the definition's, else one that lets a race of the usual length
// and its confirmation fit 80 % of the budget, from 8 s (below that, start and warm-up are most of
// a trial) to kMostTrialSeconds. `contestants`: trials of a whole round.
double TrialLimitSeconds(const Definition& definition, size_t contestants);

// To which the limit may be raised for searches of an SLO's load that end too early, at most
// kMostTrialSeconds: as many rounds as an interval needs still fit 80 % of the budget.
double MostSearchSeconds(const Definition& definition, size_t contestants);

}  // namespace pinion::harness
