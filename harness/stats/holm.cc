#include "harness/stats/holm.h"

#include <algorithm>
#include <numeric>

#include "harness/stats/distributions.h"
#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

// Two-sided sign test of n rounds, of which `against` disagree with the others.
double SignsOf(size_t n, size_t against) {
  return std::min(1.0, 2 * BinomialAtMost(n, 0.5, against));
}

size_t RoundsUntil(size_t comparisons, size_t against) {
  const double level = kFamilyLevel / static_cast<double>(std::max<size_t>(1, comparisons));
  size_t rounds = against + 1;
  while (SignsOf(rounds, against) > level) ++rounds;
  return rounds;
}

}  // namespace

size_t LeastRoundsFor(size_t comparisons) { return RoundsUntil(comparisons, 0); }
size_t RoundsFor(size_t comparisons) { return RoundsUntil(comparisons, 1); }

std::vector<Corrected> Holm(std::span<const double> p_values, double family) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<Corrected> corrected(p_values.size());
  bool rejects = true;
  double alpha = family;
  for (size_t i = 0; i < order.size(); ++i) {
    if (rejects) alpha = family / static_cast<double>(order.size() - i);
    rejects = rejects && p_values[order[i]] <= alpha;
    corrected[order[i]] = {rejects, 1 - alpha};
  }
  return corrected;
}

double SignTest(std::span<const double> samples) {
  if (samples.empty()) return 1;
  const auto above = std::count_if(samples.begin(), samples.end(), [](double x) { return x > 0; });
  const auto below = std::count_if(samples.begin(), samples.end(), [](double x) { return x < 0; });
  return SignsOf(samples.size(), samples.size() - static_cast<size_t>(std::max(above, below)));
}

}  // namespace pinion::harness
