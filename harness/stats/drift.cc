#include "harness/stats/drift.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/stats/distributions.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

const double kMedianOfT = StudentQuantile(kFreedom, 0.75);  // of |t|, Student's t
// No machine is quieter than 0.1 % between two trials: even data without any noise must leave the
// likelihood ratios finite.
constexpr double kLeastScale = 1e-3 / 1.41421356;
constexpr double kFirstScale = 0.03;  // only a starting value; the fit does not depend on it
constexpr int kSteps = 12;            // on recorded noise, 30 steps gave the same races

// The slope through 0 of y on x with the least sum of absolute distances: the median of y / x,
// weighted by |x|.
double RobustSlope(std::vector<std::pair<double, double>> points) {
  std::erase_if(points, [](const auto& point) { return point.first == 0; });
  double half = 0;
  for (const auto& [x, y] : points) half += std::abs(x) / 2;
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.second / a.first < b.second / b.first; });
  for (const auto& [x, y] : points)
    if ((half -= std::abs(x)) <= 0) return y / x;
  return 0;
}

// The smaller residual of the two neighbours in time, if both have the same sign; else 0. Taking
// the smaller one, not the mean, keeps one neighbour's spike from looking like drift.
double Agreed(std::span<const double> residuals, size_t i) {
  if (i == 0 || i + 1 >= residuals.size()) return 0;
  const double before = residuals[i - 1], after = residuals[i + 1];
  if (before * after <= 0) return 0;
  return std::abs(before) < std::abs(after) ? before : after;
}

class Fit {
 public:
  Fit(std::span<const ScoredRound> rounds, size_t contestants)
      : rounds_(rounds), levels_(rounds.size()), residuals_(rounds.size()) {
    fit_.effects.resize(contestants);
    fit_.rounds.assign(rounds.begin(), rounds.end());
  }

  Detrended Run() {
    for (int step = 0; step < kSteps; ++step) {
      TakeResiduals();
      FitShare();
      TakeDrift();
      FitEffects();
    }
    return std::move(fit_);
  }

 private:
  // Residuals: each score less its contestant's effect and its round's level. The level is a
  // median,\n  // so that a few disturbed trials do not move it.
  void TakeResiduals() {
    for (size_t r = 0; r < rounds_.size(); ++r) {
      residuals_[r].clear();
      for (const TrialScore& one : rounds_[r])
        residuals_[r].push_back(one.log_score - fit_.effects[one.contestant].log_score);
      levels_[r] = Median(residuals_[r]);
      for (double& residual : residuals_[r]) residual -= levels_[r];
    }
  }

  // After one round every residual would be taken for an effect, so there is nothing to fit yet.
  void FitShare() {
    if (rounds_.size() < 2) return;
    std::vector<std::pair<double, double>> points;
    for (const std::vector<double>& residuals : residuals_)
      for (size_t i = 0; i < residuals.size(); ++i)
        points.emplace_back(Agreed(residuals, i), residuals[i]);
    fit_.share = std::clamp(RobustSlope(std::move(points)), 0.0, 1.0);
  }

  void TakeDrift() {
    for (size_t r = 0; r < rounds_.size(); ++r)
      for (size_t i = 0; i < rounds_[r].size(); ++i)
        fit_.rounds[r][i].log_score =
            rounds_[r][i].log_score - levels_[r] - fit_.share * Agreed(residuals_[r], i);
  }

  // sqrt(n / (n - 1)): residuals of n values around their own location are too small by that
  // factor.
  void FitEffects() {
    std::vector<std::vector<double>> values(fit_.effects.size());
    for (const ScoredRound& round : fit_.rounds)
      for (const TrialScore& one : round) values[one.contestant].push_back(one.log_score);
    std::vector<double> distances;
    for (size_t c = 0; c < values.size(); ++c) {
      if (values[c].empty()) continue;
      fit_.effects[c] = RobustLocation(values[c], fit_.scale > 0 ? fit_.scale : kFirstScale);
      const auto n = static_cast<double>(values[c].size());
      if (n < 2) continue;
      for (const double value : values[c])
        distances.push_back(std::abs(value - fit_.effects[c].log_score) * std::sqrt(n / (n - 1)));
    }
    if (!distances.empty())
      fit_.scale = std::max(kLeastScale, MedianInPlace(distances) / kMedianOfT);
  }

  std::span<const ScoredRound> rounds_;
  std::vector<double> levels_;                  // by round
  std::vector<std::vector<double>> residuals_;  // by round, in its order
  Detrended fit_;
};

}  // namespace

Effect RobustLocation(std::span<const double> values, double scale) {
  Effect effect{Median(values), 0};
  for (int step = 0; step < 8; ++step) {
    double sum = 0, weights = 0;
    for (const double value : values) {
      const double z = (value - effect.log_score) / scale;
      const double weight = (kFreedom + 1) / (kFreedom + z * z);
      sum += weight * value;
      weights += weight;
    }
    if (weights > 0) effect = {sum / weights, weights};
  }
  return effect;
}

Detrended WithoutDrift(std::span<const ScoredRound> rounds, size_t contestants) {
  return Fit(rounds, contestants).Run();
}

}  // namespace pinion::harness
