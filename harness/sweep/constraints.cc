#include "harness/sweep/constraints.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion::harness {

std::optional<std::string> WhyDisqualified(const Constraints& constraints,
                                           const std::vector<TrialRow>& trials, int candidate) {
  if (!constraints.peak_rss_bytes) return std::nullopt;
  double peak = 0;
  for (const TrialRow& trial : trials)
    for (const MetricValue& sample : trial.samples)
      if (trial.candidate == candidate && trial.ok && sample.metric == "peak_rss_bytes")
        peak = std::max(peak, sample.value);
  const auto limit = static_cast<double>(*constraints.peak_rss_bytes);
  if (peak <= limit) return std::nullopt;
  return StrCat("disqualified: its memory reached ", FormatBytes(static_cast<uint64_t>(peak)),
                ", and the constraint allows ", FormatBytes(*constraints.peak_rss_bytes));
}

}  // namespace pinion::harness
