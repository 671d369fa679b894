#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "harness/stats/drift.h"
#include "harness/stats/population.h"

namespace pinion::harness {

// How careful a race is.
struct RaceOptions {
  double epsilon = 0.02;  // smallest difference worth having, a fraction
  double alpha = 0.1;  // chance that somebody leaves who is better than that, over all contestants
  bool drops = true;   // false: everybody stays to the end (an exhaustive grid)
};

// What became of a contestant.
enum class RaceStatus {
  kIn,         // still measured
  kWorse,      // left: worse than the leader by more than epsilon
  kNotBetter,  // left: cannot be better than the leader by more than epsilon
  kWithdrawn,  // taken out: it fails
};

// Several configurations measured round by round, until one of them is known to be within epsilon
// of the best. Numbers in, standings out: who measures, and how, is somebody else's business.
//
// Scores are taken without drift, and their noise is pooled over all contestants (stats/drift.h).
// For each ordered pair (contestant c, leader b) the evidence against "c is better than b by
// epsilon" is a mixture likelihood ratio over all their common rounds; c leaves when it reaches
// contestants / alpha, whenever that is looked at (Ville). The race is over when the chance that
// anybody left is better than the leader by more than epsilon is small, all contestants being taken
// as one population: 24 equal ones look better than each other by chance alone, and their estimates
// together tell so. docs/verdicts.md says what each of these was chosen over, with its figures.
class Race {
 public:
  Race(size_t contestants, RaceOptions options);

  // The scores of one round, in the order in which they were measured. Who has left stays out,
  // whatever is measured of it later.
  void AddRound(std::span<const Scored> in_order);

  // For a contestant that cannot be measured any more. Where it led, who left because of it is
  // back.
  void Withdraw(size_t contestant);

  size_t rounds() const { return rounds_.size(); }
  // The best by its estimate among those still in; nullopt before anybody was measured.
  std::optional<size_t> leader() const { return leader_; }
  // Whether there are rounds enough for the noise's scale to be known.
  bool may_decide() const;
  bool over() const { return over_; }
  RaceStatus status(size_t contestant) const { return statuses_[contestant]; }
  bool is_in(size_t contestant) const { return statuses_[contestant] == RaceStatus::kIn; }

  // Log score relative to the others', without drift; nullopt where it was never measured.
  std::optional<double> estimate(size_t contestant) const {
    const Worth& worth = steady_.worths[contestant];
    return worth.trials > 0 ? std::optional(worth.log_score) : std::nullopt;
  }

  // Robust scale of the difference of two steady trials of one round, in logs; 0 before two rounds.
  double scale() const { return scale_; }
  // How much c is ahead of b over their common rounds, in logs, with an approximate 95 % interval
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
  Steady steady_;
  std::optional<size_t> leader_;
  double scale_ = 0;
  bool over_ = false;
};

// How many fresh rounds tell the winner from the default: 10, whose interval from order statistics
// covers 97.9 %, which leaves room for autocorrelation above the 95 % that are promised. 13, the
// next number of that kind, where the noise of a pair is between one and two epsilon: there they
// bring differences within reach that 10 leave in the dark. Beyond that neither does.
size_t ConfirmationRounds(double scale, double epsilon);

}  // namespace pinion::harness
