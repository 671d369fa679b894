#include "harness/stats/race.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "harness/stats/distributions.h"
#include "harness/stats/estimate.h"
#include "harness/stats/population.h"
#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

// Standard error of a location under Student's t with v degrees of freedom, in scales: its variance
// is (v + 3) / (v + 1) by Fisher information.
const double kSpread = std::sqrt((kFreedom + 3) / (kFreedom + 1));

// A contestant's score in a round: the mean of its trials.
std::optional<double> MeanOf(const ScoredRound& round, size_t contestant) {
  double sum = 0, n = 0;
  for (const TrialScore& one : round)
    if (one.contestant == contestant) sum += one.log_score, ++n;
  return n > 0 ? std::optional(sum / n) : std::nullopt;
}

double LogDensity(double z) { return -(kFreedom + 1) / 2 * std::log1p(z * z / kFreedom); }

double LogSumExp(std::span<const double> values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

}  // namespace

Race::Race(size_t contestants, RaceOptions options)
    : options_(options), statuses_(contestants, RaceStatus::kIn) {
  detrended_.effects.resize(contestants);
}

void Race::AddRound(std::span<const TrialScore> in_order) {
  ScoredRound round;
  for (const TrialScore& one : in_order) {
    CHECK(one.contestant < statuses_.size()) << "contestant " << one.contestant;
    if (is_in(one.contestant)) round.push_back(one);
  }
  rounds_.push_back(std::move(round));
  Estimate();
  if (may_decide()) Decide();
}

void Race::Withdraw(size_t contestant) {
  if (leader_ == contestant) {
    for (RaceStatus& status : statuses_)
      if (status == RaceStatus::kWorse || status == RaceStatus::kNotBetter)
        status = RaceStatus::kIn;
    leader_.reset();
  }
  statuses_[contestant] = RaceStatus::kWithdrawn;
}

void Race::Estimate() {
  detrended_ = WithoutDrift(rounds_, statuses_.size());
  scale_ = detrended_.scale * std::sqrt(2.0);
  leader_.reset();
  for (size_t c = 0; c < statuses_.size(); ++c)
    if (is_in(c) && estimate(c) && (!leader_ || *estimate(c) > *estimate(*leader_))) leader_ = c;
}

// Contestant 0 is the baseline, which every confirmation has.
std::optional<size_t> Race::RunnerUp() const {
  std::optional<size_t> second;
  for (size_t c = 1; c < statuses_.size(); ++c)
    if (is_in(c) && c != leader_ && estimate(c) && (!second || *estimate(c) > *estimate(*second)))
      second = c;
  return second;
}

// The number of trials of each contestant.
std::vector<size_t> Race::Measured() const {
  std::vector<size_t> times(statuses_.size());
  for (const ScoredRound& round : rounds_)
    for (const TrialScore& one : round) ++times[one.contestant];
  return times;
}

bool Race::may_decide() const {
  const size_t n = rounds_.size();
  const bool noisy = scale_ > kNoisyScales * options_.epsilon;
  if (!leader_ || n < (noisy ? kLeastRaceRoundsNoisy : kLeastRaceRounds)) return false;
  size_t residuals = 0;
  for (const size_t times : Measured()) residuals += times > 1 ? times - 1 : 0;
  return residuals >= kLeastResiduals;
}

std::vector<double> Race::Differences(size_t c, size_t b) const {
  std::vector<double> differences;
  for (const ScoredRound& round : detrended_.rounds) {
    const auto of_c = MeanOf(round, c), of_b = MeanOf(round, b);
    if (of_c && of_b) differences.push_back(*of_c - *of_b);
  }
  return differences;
}

// Evidence that the true difference lies below the boundary: the log of the mean, over shifts below
// it by 1/2 to 64 scales, of the likelihood ratio of the shift to the boundary. If the boundary is
// the truth, each ratio has an expectation of 1 after any number of rounds, and so has their mean.
// By Ville's inequality it then ever reaches 1 / a with a chance of at most a, so that it may be
// looked at after every round. Several shifts, because the true one is unknown.
double Race::LogEvidence(std::span<const double> differences, double boundary) const {
  std::vector<double> ratios;
  for (double distance = 0.5; distance <= 64; distance *= 2) {
    double ratio = 0;
    for (const double d : differences) {
      const double z = (d - boundary) / scale_;
      ratio += LogDensity(z + distance) - LogDensity(z);
    }
    ratios.push_back(ratio);
  }
  return LogSumExp(ratios) - std::log(static_cast<double>(ratios.size()));
}

// By contestant; an error of 0 means never measured. Trials that disagree weigh less, which widens
// the error.
std::vector<Population::Member> Race::Members() const {
  std::vector<Population::Member> members;
  for (const Effect& effect : detrended_.effects)
    members.push_back({effect.log_score, effect.trials > 0
                                             ? detrended_.scale * kSpread / std::sqrt(effect.trials)
                                             : 0});
  return members;
}

void Race::Decide() {
  const double epsilon = std::max(std::log1p(options_.epsilon), kWorthScales * scale_);
  const double enough = std::log(static_cast<double>(statuses_.size()) / options_.alpha);
  const std::vector<Population::Member> members = Members();
  const Population population(members);
  // That one still in is better than the leader by more than epsilon; a union bound. The runner-up
  // is confirmed beside the leader, so it need not be told from it, unless the baseline leads.
  double chance = 0;
  const std::optional<size_t> second = leader_ == size_t{0} ? std::nullopt : RunnerUp();
  for (size_t c = 0; c < statuses_.size(); ++c) {
    if (!is_in(c) || c == *leader_) continue;
    const std::vector<double> differences = Differences(c, *leader_);
    if (differences.empty()) continue;
    if (options_.drops && LogEvidence(differences, epsilon) >= enough) {
      const bool worse = LogEvidence(differences, -epsilon) >= enough;
      statuses_[c] = worse ? RaceStatus::kWorse : RaceStatus::kNotBetter;
      continue;
    }
    if (c != second) chance += population.ChanceAhead(members[c], members[*leader_], epsilon);
  }
  over_ = options_.drops && chance < kNotWorthIt;
}

std::optional<Race::Gap> Race::GapBetween(size_t c, size_t b) const {
  const std::vector<double> differences = Differences(c, b);
  if (differences.empty() || scale_ == 0) return std::nullopt;
  const auto n = static_cast<double>(differences.size());
  const double estimate = RobustLocation(differences, scale_).log_score;
  const double error = NormalQuantile(0.975) * kSpread * scale_ / std::sqrt(n);
  return Gap{estimate, estimate - error, estimate + error, differences.size()};
}

}  // namespace pinion::harness
