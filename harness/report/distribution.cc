#include "harness/report/distribution.h"

#include <cmath>

namespace pinion::harness {

const Distribution* FindDistribution(const Candidate& candidate, const std::string& metric,
                                     LoadLevel level) {
  for (const Distribution& one : candidate.distributions)
    if (one.metric == metric && one.level == level && !one.quantiles.empty()) return &one;
  return nullptr;
}

double TailQuantile(const Distribution& one) {
  const size_t fewest = one.fewest ? one.fewest : one.n;
  for (const double q : {0.95, 0.90})
    if (one.n >= SamplesNeededForQuantile(q) && fewest >= SamplesBeyondQuantile(q)) return q;
  return 0.75;
}

double ValueAt(const Distribution& one, double q) {
  const double last = static_cast<double>(one.quantiles.size() - 1);
  return one.quantiles[static_cast<size_t>(std::lround(q * last))];
}

}  // namespace pinion::harness
