#include "harness/stats/drift.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

constexpr double kMedianOfT4 = 0.7407;  // of |t|
// No machine is quieter than 0.1 % between two trials: noise that somebody forgot must leave the
// ratios finite.
constexpr double kLeastScale = 1e-3 / 1.41421356;
constexpr double kFirstScale = 0.03;  // a start; the fit does not depend on it
constexpr int kSteps = 12;            // on recorded noise 30 gave the same races

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

// The smaller of what both neighbours in time are off by, where that is in the same direction.
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
    steady_.worths.resize(contestants);
    steady_.rounds.assign(rounds.begin(), rounds.end());
  }

  Steady Run() {
    for (int step = 0; step < kSteps; ++step) {
      TakeResiduals();
      FitShare();
      TakeDrift();
      FitWorths();
    }
    return std::move(steady_);
  }

 private:
  // What is left of each score without its contestant's worth and its round's level.
  void TakeResiduals() {
    for (size_t r = 0; r < rounds_.size(); ++r) {
      residuals_[r].clear();
      for (const Scored& one : rounds_[r])
        residuals_[r].push_back(one.log_score - steady_.worths[one.contestant].log_score);
      levels_[r] = Median(residuals_[r]);
      for (double& residual : residuals_[r]) residual -= levels_[r];
    }
  }

  // After one round all that is left is worth.
  void FitShare() {
    if (rounds_.size() < 2) return;
    std::vector<std::pair<double, double>> points;
    for (const std::vector<double>& residuals : residuals_)
      for (size_t i = 0; i < residuals.size(); ++i)
        points.emplace_back(Agreed(residuals, i), residuals[i]);
    steady_.share = std::clamp(RobustSlope(std::move(points)), 0.0, 1.0);
  }

  void TakeDrift() {
    for (size_t r = 0; r < rounds_.size(); ++r)
      for (size_t i = 0; i < rounds_[r].size(); ++i)
        steady_.rounds[r][i].log_score =
            rounds_[r][i].log_score - levels_[r] - steady_.share * Agreed(residuals_[r], i);
  }

  // sqrt(n / (n - 1)): residuals of n values around their own location are that much too small.
  void FitWorths() {
    std::vector<std::vector<double>> values(steady_.worths.size());
    for (const ScoredRound& round : steady_.rounds)
      for (const Scored& one : round) values[one.contestant].push_back(one.log_score);
    std::vector<double> distances;
    for (size_t c = 0; c < values.size(); ++c) {
      if (values[c].empty()) continue;
      steady_.worths[c] =
          RobustLocation(values[c], steady_.scale > 0 ? steady_.scale : kFirstScale);
      const auto n = static_cast<double>(values[c].size());
      if (n < 2) continue;
      for (const double value : values[c])
        distances.push_back(std::abs(value - steady_.worths[c].log_score) * std::sqrt(n / (n - 1)));
    }
    if (!distances.empty())
      steady_.scale = std::max(kLeastScale, MedianInPlace(distances) / kMedianOfT4);
  }

  std::span<const ScoredRound> rounds_;
  std::vector<double> levels_;                  // by round
  std::vector<std::vector<double>> residuals_;  // by round, in its order
  Steady steady_;
};

}  // namespace

Worth RobustLocation(std::span<const double> values, double scale) {
  Worth worth{Median(values), 0};
  for (int step = 0; step < 8; ++step) {
    double sum = 0, weights = 0;
    for (const double value : values) {
      const double z = (value - worth.log_score) / scale;
      const double weight = (kFreedom + 1) / (kFreedom + z * z);
      sum += weight * value;
      weights += weight;
    }
    if (weights > 0) worth = {sum / weights, weights};
  }
  return worth;
}

Steady WithoutDrift(std::span<const ScoredRound> rounds, size_t contestants) {
  return Fit(rounds, contestants).Run();
}

}  // namespace pinion::harness
