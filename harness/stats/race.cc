#include "harness/stats/race.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "harness/stats/estimate.h"
#include "harness/stats/population.h"

namespace pinion::harness {
namespace {

constexpr double kFreedom = 4;          // of Student's t
constexpr double kMedianOfT4 = 0.7407;  // of |t|
// No machine is quieter than 0.1 %: noise that somebody forgot must leave the ratios finite.
constexpr double kLeastScale = 1e-3;
constexpr double kNotWorthIt = 0.05;  // chance that a better one is left, at which a race ends
// From so many epsilon on, noise has tails that two rounds cannot tell from differences.
constexpr double kNoisyScales = 2;
constexpr size_t kLeastRounds = 2;
constexpr size_t kLeastRoundsNoisy = 4;
// Residuals that the pooled scale must rest on before anything is decided from it.
constexpr size_t kLeastResiduals = 7;
// Student's t wastes little against a normal mean: variance (v + 3) / (v + 1) of a location.
const double kSpread = std::sqrt((kFreedom + 3) / (kFreedom + 1));

double LogDensity(double z) { return -(kFreedom + 1) / 2 * std::log1p(z * z / kFreedom); }

double LogSumExp(std::span<const double> values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

}  // namespace

double RobustLocation(std::span<const double> values, double scale) {
  double location = Median(values);
  for (int step = 0; step < 8; ++step) {
    double sum = 0, weights = 0;
    for (const double value : values) {
      const double z = (value - location) / scale;
      const double weight = (kFreedom + 1) / (kFreedom + z * z);
      sum += weight * value;
      weights += weight;
    }
    if (weights > 0) location = sum / weights;
  }
  return location;
}

size_t ConfirmationRounds(double scale, double epsilon) {
  return scale > epsilon && scale <= 2 * epsilon ? 13 : 10;
}

Race::Race(size_t contestants, RaceOptions options)
    : options_(options), standings_(contestants, Standing::kIn), estimates_(contestants) {}

void Race::AddRound(std::span<const std::optional<double>> log_scores) {
  CHECK(log_scores.size() == standings_.size()) << log_scores.size() << " scores";
  Round round(log_scores.begin(), log_scores.end());
  for (size_t c = 0; c < round.size(); ++c)
    if (!is_in(c)) round[c].reset();
  rounds_.push_back(std::move(round));
  Estimate();
  if (may_decide()) Decide();
}

void Race::Withdraw(size_t contestant) {
  if (leader_ == contestant) {
    for (Standing& standing : standings_)
      if (standing == Standing::kWorse || standing == Standing::kNotBetter)
        standing = Standing::kIn;
    leader_.reset();
  }
  standings_[contestant] = Standing::kWithdrawn;
}

// Scores relative to the median of those still in, which drift moves along; then the location of
// each and the pooled scale, in turn, since each needs the other.
void Race::Estimate() {
  std::vector<std::vector<double>> centred(standings_.size());
  for (const Round& round : rounds_) {
    std::vector<double> present;
    for (size_t c = 0; c < round.size(); ++c)
      if (is_in(c) && round[c]) present.push_back(*round[c]);
    const double middle = Median(present);
    for (size_t c = 0; c < round.size(); ++c)
      if (is_in(c) && round[c]) centred[c].push_back(*round[c] - middle);
  }
  if (scale_ == 0) scale_ = 0.05;  // a start; the fit does not depend on it
  for (int step = 0; step < 3; ++step) {
    for (size_t c = 0; c < centred.size(); ++c)
      if (!centred[c].empty()) estimates_[c] = RobustLocation(centred[c], scale_ / std::sqrt(2.0));
    FitScale(centred);
  }
  leader_.reset();
  for (size_t c = 0; c < centred.size(); ++c)
    if (!centred[c].empty() && (!leader_ || *estimates_[c] > *estimates_[*leader_])) leader_ = c;
}

// sqrt(n / (n - 1)): residuals of n values around their own location are that much too small.
// sqrt(2): of a difference of two.
void Race::FitScale(const std::vector<std::vector<double>>& centred) {
  std::vector<double> residuals;
  for (size_t c = 0; c < centred.size(); ++c) {
    const auto n = static_cast<double>(centred[c].size());
    if (n < 2) continue;
    for (const double value : centred[c])
      residuals.push_back(std::abs(value - *estimates_[c]) * std::sqrt(n / (n - 1)));
  }
  if (residuals.empty()) return;
  scale_ = std::max(kLeastScale, Median(residuals) / kMedianOfT4 * std::sqrt(2.0));
}

bool Race::may_decide() const {
  const size_t n = rounds_.size();
  const bool noisy = scale_ > kNoisyScales * options_.epsilon;
  if (!leader_ || n < (noisy ? kLeastRoundsNoisy : kLeastRounds)) return false;
  size_t residuals = 0;
  for (size_t c = 0; c < standings_.size(); ++c) {
    size_t values = 0;
    for (const Round& round : rounds_) values += round[c] ? 1 : 0;
    residuals += values > 1 ? values - 1 : 0;
  }
  return residuals >= kLeastResiduals;
}

std::vector<double> Race::Differences(size_t c, size_t b) const {
  std::vector<double> differences;
  for (const Round& round : rounds_)
    if (round[c] && round[b]) differences.push_back(*round[c] - *round[b]);
  return differences;
}

// log of the mean, over shifts below the boundary by 1/2 to 64 scales, of the likelihood ratio of
// the shift to the boundary itself: its expectation is 1 where the boundary is the truth.
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

// By contestant; an error of 0 where it was never measured.
std::vector<Population::Member> Race::Members() const {
  std::vector<Population::Member> members(standings_.size());
  for (size_t c = 0; c < standings_.size(); ++c) {
    double values = 0;
    for (const Round& round : rounds_) values += round[c] ? 1 : 0;
    if (values > 0) members[c] = {*estimates_[c], scale_ * kSpread / std::sqrt(2 * values)};
  }
  return members;
}

void Race::Decide() {
  const double epsilon = std::log1p(options_.epsilon);
  const double enough = std::log(static_cast<double>(standings_.size()) / options_.alpha);
  const std::vector<Population::Member> members = Members();
  const Population population(members);
  double chance = 0;  // that somebody who is in is better than the leader by more than epsilon
  for (size_t c = 0; c < standings_.size(); ++c) {
    if (!is_in(c) || c == *leader_) continue;
    const std::vector<double> differences = Differences(c, *leader_);
    if (differences.empty()) continue;
    if (options_.drops && LogEvidence(differences, epsilon) >= enough) {
      const bool worse = LogEvidence(differences, -epsilon) >= enough;
      standings_[c] = worse ? Standing::kWorse : Standing::kNotBetter;
      continue;
    }
    chance += population.ChanceAhead(members[c], members[*leader_], epsilon);
  }
  over_ = options_.drops && chance < kNotWorthIt;
}

std::optional<Race::Gap> Race::GapBetween(size_t c, size_t b) const {
  const std::vector<double> differences = Differences(c, b);
  if (differences.empty() || scale_ == 0) return std::nullopt;
  const auto n = static_cast<double>(differences.size());
  const double estimate = RobustLocation(differences, scale_);
  const double error = 1.96 * kSpread * scale_ / std::sqrt(n);
  return Gap{estimate, estimate - error, estimate + error, differences.size()};
}

}  // namespace pinion::harness
