#include "harness/stats/pareto.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/stats/distributions.h"
#include "harness/stats/drift.h"
#include "harness/stats/estimate.h"
#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

using Quantity = ByRound ParetoPoint::*;

// No machine is quieter than 0.1 % between two trials.
constexpr double kLeastNoise = 1e-3;

std::vector<double> Differences(const ByRound& a, const ByRound& b) {
  std::vector<double> differences;
  for (const auto& [round, value] : a)
    if (const auto other = b.find(round); other != b.end())
      differences.push_back(value - other->second);
  return differences;
}

double MedianOf(const ByRound& values) {
  std::vector<double> all;
  for (const auto& [round, value] : values) all.push_back(value);
  return Median(all);
}

// The scale of Student's t of the difference of two points of a load in one round, by load: pooled
// over the differences of all from the load's first point, which is measured in every round. A load
// with too few differences has none.
std::map<size_t, double> Scales(std::span<const ParetoPoint> points, Quantity quantity) {
  std::map<size_t, const ParetoPoint*> firsts;
  std::map<size_t, std::vector<double>> residuals;
  for (const ParetoPoint& point : points) {
    const ParetoPoint* first = firsts.try_emplace(point.load, &point).first->second;
    const std::vector<double> differences = Differences(point.*quantity, first->*quantity);
    if (first == &point || differences.size() < 2) continue;
    const auto n = static_cast<double>(differences.size());
    for (const double one : differences)
      residuals[point.load].push_back(std::abs(one - Median(differences)) * std::sqrt(n / (n - 1)));
  }
  std::map<size_t, double> scales;
  for (const auto& [load, list] : residuals)
    if (list.size() >= kLeastResiduals)
      scales[load] = std::max(kLeastNoise, Median(list) / StudentQuantile(kFreedom, 0.75));
  return scales;
}

// How far a point lies before another one in a quantity, in logs.
struct Lead {
  double estimate = 0;
  bool is_sure = false;  // its interval lies above 0
};

class Leads {
 public:
  Leads(std::span<const ParetoPoint> points, Quantity quantity)
      : points_(points), quantity_(quantity), scales_(Scales(points, quantity)) {
    const auto rivals = static_cast<double>(std::max<size_t>(2, points.size()) - 1);
    wrong_ = kFamilyLevel / rivals;
  }

  Lead Of(size_t a, size_t b) const {
    const ByRound &of_a = points_[a].*quantity_, &of_b = points_[b].*quantity_;
    const std::vector<double> differences = Differences(of_a, of_b);
    if (differences.empty()) return {MedianOf(of_a) - MedianOf(of_b)};
    const double estimate = Median(differences);
    if (estimate <= 0) return {estimate};
    const Estimate ratio = EstimateRatio(differences, 1 - 2 * wrong_);
    if (ratio.interval) return {estimate, ratio.interval->low > 1};
    return {estimate, estimate > ErrorOf(a, b, differences.size())};
  }

 private:
  // Of the median of n differences, as if its tails were those of one.
  double ErrorOf(size_t a, size_t b, size_t n) const {
    const auto of_a = scales_.find(points_[a].load), of_b = scales_.find(points_[b].load);
    if (of_a == scales_.end() || of_b == scales_.end()) return HUGE_VAL;
    return StudentQuantile(kFreedom, 1 - wrong_) * std::max(of_a->second, of_b->second) /
           std::sqrt(static_cast<double>(n));
  }

  std::span<const ParetoPoint> points_;
  Quantity quantity_;
  std::map<size_t, double> scales_;
  double wrong_ = 0;  // the chance that a test is wrong
};

}  // namespace

const char* Name(Front front) {
  return front == Front::kOn ? "on" : front == Front::kPossible ? "possible" : "off";
}

std::vector<FrontPlace> ParetoFront(std::span<const ParetoPoint> points) {
  const Leads firsts(points, &ParetoPoint::first), seconds(points, &ParetoPoint::second);
  std::vector<FrontPlace> places(points.size());
  for (size_t b = 0; b < points.size(); ++b) {
    double longest = 0;
    for (size_t a = 0; a < points.size() && places[b].front != Front::kOff; ++a) {
      const Lead first = a == b ? Lead{-1} : firsts.Of(a, b);
      const Lead second = first.estimate < 0 ? Lead{-1} : seconds.Of(a, b);
      if (second.estimate < 0) continue;
      if (first.is_sure && second.is_sure) {
        places[b] = {Front::kOff, a};
      } else if (first.estimate + second.estimate > longest) {
        places[b] = {Front::kPossible, a};
        longest = first.estimate + second.estimate;
      }
    }
  }
  return places;
}

}  // namespace pinion::harness
