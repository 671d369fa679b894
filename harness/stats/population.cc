#include "harness/stats/population.h"

#include <algorithm>
#include <cmath>

#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

// The prior. Most members (1 - kFew) lie around the centre with a spread from 1/8 % to 32 %, which
// the data choose; a few (kFew) lie within kAnywhere. Settings rarely differ by more, and such
// differences show under any prior.
constexpr double kLeastSpread = 0.00125, kMostSpread = 0.32, kAnywhere = 0.2;
constexpr double kFew = 0.05;

double Density(double x, double variance) {
  return std::exp(-x * x / (2 * variance)) / std::sqrt(variance);
}

double NormalTail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

}  // namespace

Population::Population(std::span<const Member> members) {
  std::vector<double> estimates;
  for (const Member& member : members)
    if (member.error > 0) estimates.push_back(member.estimate);
  centre_ = Median(estimates);
  double most = -1e300;
  for (double spread = kLeastSpread; spread <= kMostSpread; spread *= 2) {
    double log_likelihood = std::log(spread);  // a flat prior: steps are as wide as their spread
    for (const Member& member : members) {
      if (member.error <= 0) continue;
      double density = 0;
      for (const Component& one : PosteriorOf(member, spread)) density += one.weight;
      log_likelihood += std::log(density + 1e-300);
    }
    most = std::max(most, log_likelihood);
    spreads_.push_back({log_likelihood, spread});
  }
  double sum = 0;
  for (Component& one : spreads_) sum += one.weight = std::exp(one.weight - most);
  for (Component& one : spreads_) one.weight /= sum;
}

// The weight of each component: its prior weight times the density of the estimate under it.
std::vector<Population::Component> Population::PosteriorOf(const Member& member,
                                                           double spread) const {
  std::vector<Component> components = {{1 - kFew, spread}, {kFew, kAnywhere}};
  for (Component& one : components)
    one.weight *=
        Density(member.estimate - centre_, one.spread * one.spread + member.error * member.error);
  return components;
}

double Population::ChanceAhead(const Member& a, const Member& b, double margin) const {
  // A member's posterior mean under a component: its estimate, shrunk towards the centre.
  const auto mean = [&](const Member& member, const Component& one, double& variance) {
    const double prior = one.spread * one.spread, own = member.error * member.error;
    const double kept = prior / (prior + own);
    variance = kept * own;
    return centre_ + kept * (member.estimate - centre_);
  };
  double chance = 0;
  for (const Component& of_many : spreads_) {
    double sum = 0, weights = 0;
    for (const Component& of_a : PosteriorOf(a, of_many.spread))
      for (const Component& of_b : PosteriorOf(b, of_many.spread)) {
        double variance_a = 0, variance_b = 0;
        const double ahead = mean(a, of_a, variance_a) - mean(b, of_b, variance_b);
        const double weight = of_a.weight * of_b.weight;
        sum += weight * NormalTail((margin - ahead) / std::sqrt(variance_a + variance_b));
        weights += weight;
      }
    chance += of_many.weight * (weights > 0 ? sum / weights : 0.5);
  }
  return chance;
}

}  // namespace pinion::harness
