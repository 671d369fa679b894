#include "harness/sweep/slo.h"

#include <map>

#include "harness/load/slo_search.h"

namespace pinion::harness {

std::optional<SloFinding> PooledBoundary(const std::vector<TrialRow>& trials, int candidate,
                                         const SloTarget& target) {
  std::map<double, SloLevel> by_load;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != candidate || !trial.ok || !trial.info.slo) continue;
    for (const auto& [load, run] : trial.info.slo->levels) {
      SloLevel& level = by_load[load];
      level.load = load;
      level.good += run.good;
      level.total += run.total;
      ++level.runs;
    }
  }
  if (by_load.empty()) return std::nullopt;
  std::vector<SloLevel> levels;
  for (const auto& [load, level] : by_load) levels.push_back(level);
  SloFinding found;
  found.options.whole = !target.by_rate;
  found.options.attain = target.attain;
  found.boundary = JudgeLevels(std::move(levels), target.attain);
  SloBoundary& boundary = found.boundary;
  if (boundary.pass && boundary.fail) {
    constexpr double kNear = 1.25;  // trials search to within a fifth
    const double pass = boundary.levels[*boundary.pass].load;
    const double fail = boundary.levels[*boundary.fail].load;
    boundary.is_settled = fail / pass <= kNear || (found.options.whole && fail - pass <= 1);
  }
  return found;
}

}  // namespace pinion::harness
