#include "harness/sweep/measured_loads.h"

#include <map>

#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

// Windows of one load in all trials.
struct SampleTotals {
  std::vector<double> start_s, length_s, requests;
  size_t by_time = 0, knows_end = 0;
};

void Take(const LoadWindow& window, SampleTotals& totals) {
  totals.requests.push_back(window.requests);
  totals.by_time += window.by_time.value_or(false) ? 1 : 0;
  totals.knows_end += window.by_time ? 1 : 0;
  if (!window.start_s || !window.end_s) return;
  totals.start_s.push_back(*window.start_s);
  totals.length_s.push_back(*window.end_s - *window.start_s);
}

MeasuredLoad LoadOf(LoadLevel level, const SampleTotals& totals) {
  MeasuredLoad load;
  load.level = level;
  load.trials = totals.requests.size();
  load.whole = load.trials - totals.start_s.size();
  load.requests = Median(totals.requests);
  if (totals.knows_end > 0) load.by_time = totals.by_time;
  if (totals.start_s.empty()) return load;
  load.start_s = Median(totals.start_s);
  load.length_s = Median(totals.length_s);
  return load;
}

}  // namespace

MeasuredLoads MeasuredLoadsOf(const std::vector<TrialRow>& trials) {
  MeasuredLoads loads;
  std::map<LoadLevel, SampleTotals> by_level;
  std::vector<double> warm_up_s;
  for (const TrialRow& trial : trials) {
    if (!trial.ok) continue;
    for (const LoadWindow& window : trial.info.windows) Take(window, by_level[window.level]);
    if (trial.info.warm_up_s) warm_up_s.push_back(*trial.info.warm_up_s);
    loads.trials += trial.info.generator ? 1 : 0;
    loads.apart += trial.info.generator && trial.info.generator->is_apart ? 1 : 0;
  }
  for (const bool is_open : {false, true})
    for (const auto& [level, totals] : by_level)
      if (level.is_open() == is_open) loads.each.push_back(LoadOf(level, totals));
  if (!warm_up_s.empty()) loads.warm_up_s = Median(warm_up_s);
  return loads;
}

}  // namespace pinion::harness
