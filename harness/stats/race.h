#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "harness/stats/drift.h"
#include "harness/stats/population.h"
#include "harness/stats/rules.h"

namespace pinion::harness {

// The rules by which a race drops contestants and ends.
struct RaceOptions {
  // Smallest difference worth having, a fraction; in much noise kWorthScales of it, since less
  // could not be confirmed.
  double epsilon = 0.02;
  double alpha = kDroppedWrongly;  // chance that any contestant better by epsilon is dropped
  bool drops = true;               // false: no contestant is dropped (an exhaustive grid)
};

// A contestant's state in the race.
enum class RaceStatus {
  kIn,         // still measured
  kWorse,      // dropped: worse than the leader by more than epsilon
  kNotBetter,  // dropped: cannot be better than the leader by more than epsilon
  kWithdrawn,  // taken out because it fails
};

// Several configurations measured round by round, until one of them is known to be within epsilon
// of the best. The race takes numbers and gives statuses; the caller measures.
//
// Drift is removed from the scores, and their noise is pooled over all contestants (stats/drift.h).
// For each ordered pair (contestant c, leader b) the evidence against "c is better than b by
// epsilon" is a mixture likelihood ratio over all their common rounds; c is dropped when it reaches
// contestants / alpha, after however many rounds (Ville's inequality). The race is over when the
// chance that any remaining contestant but the runner-up beats the leader by more than epsilon is
// small: these two are confirmed together, unless the baseline leads. For that
// chance all contestants are one population: of 24 equal ones some look better by luck, and only
// their estimates together show it. docs/verdicts.md compares each of these choices with its
// alternatives.
class Race {
 public:
  Race(size_t contestants, RaceOptions options);

  // The scores of one round, in the order of measurement. Scores of contestants that were dropped
  // are ignored.
  void AddRound(std::span<const TrialScore> in_order);

  // For a contestant that cannot be measured any more. If it led, the contestants that were dropped
  // because of it return.
  void Withdraw(size_t contestant);

  size_t rounds() const { return rounds_.size(); }
  // The best by its estimate among those still in; nullopt before the first round.
  std::optional<size_t> leader() const { return leader_; }
  // The next best of those still in that is not the baseline (contestant 0).
  std::optional<size_t> RunnerUp() const;
  // Whether there are enough rounds to know the noise's scale.
  bool may_decide() const;
  bool over() const { return over_; }
  RaceStatus status(size_t contestant) const { return statuses_[contestant]; }
  bool is_in(size_t contestant) const { return statuses_[contestant] == RaceStatus::kIn; }

  // Log score relative to the others', without drift; nullopt if it was never measured.
  std::optional<double> estimate(size_t contestant) const {
    const Effect& effect = detrended_.effects[contestant];
    return effect.trials > 0 ? std::optional(effect.log_score) : std::nullopt;
  }

  // Robust scale of the difference of two detrended trials of one round, in logs; 0 before two
  // rounds.
  double scale() const { return scale_; }
  // The lead of c over b in their common rounds, in logs, with an approximate 95 % interval
  // from the pooled scale; nullopt without a common round.
  struct Gap {
    double estimate = 0, low = 0, high = 0;
    size_t rounds = 0;
  };
  std::optional<Gap> GapBetween(size_t c, size_t b) const;

 private:
  void Estimate();
  void Decide();
  std::vector<size_t> Measured() const;
  std::vector<Population::Member> Members() const;
  std::vector<double> Differences(size_t c, size_t b) const;
  double LogEvidence(std::span<const double> differences, double boundary) const;

  RaceOptions options_;
  std::vector<ScoredRound> rounds_;
  std::vector<RaceStatus> statuses_;
  Detrended detrended_;
  std::optional<size_t> leader_;
  double scale_ = 0;
  bool over_ = false;
};

}  // namespace pinion::harness
