#include "harness/sweep/measured_loads.h"

#include <map>

#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

// What the trials tell of one load.
struct Told {
  std::vector<double> start_s, length_s, requests;
  size_t by_time = 0, knows_end = 0;
};

void Take(const LoadWindow& window, Told& told) {
  told.requests.push_back(window.requests);
  told.by_time += window.by_time.value_or(false) ? 1 : 0;
  told.knows_end += window.by_time ? 1 : 0;
  if (!window.start_s || !window.end_s) return;
  told.start_s.push_back(*window.start_s);
  told.length_s.push_back(*window.end_s - *window.start_s);
}

MeasuredLoad LoadOf(LoadLevel level, const Told& told) {
  MeasuredLoad load;
  load.level = level;
  load.trials = told.requests.size();
  load.whole = load.trials - told.start_s.size();
  load.requests = Median(told.requests);
  if (told.knows_end > 0) load.by_time = told.by_time;
  if (told.start_s.empty()) return load;
  load.start_s = Median(told.start_s);
  load.length_s = Median(told.length_s);
  return load;
}

}  // namespace

MeasuredLoads MeasuredLoadsOf(const std::vector<TrialRow>& trials) {
  MeasuredLoads loads;
  std::map<LoadLevel, Told> by_level;
  std::vector<double> warm_up_s;
  for (const TrialRow& trial : trials) {
    if (!trial.ok) continue;
    for (const LoadWindow& window : trial.info.windows) Take(window, by_level[window.level]);
    if (trial.info.warm_up_s) warm_up_s.push_back(*trial.info.warm_up_s);
    loads.trials += trial.info.generator ? 1 : 0;
    loads.apart += trial.info.generator && trial.info.generator->is_apart ? 1 : 0;
  }
  for (const bool is_open : {false, true})
    for (const auto& [level, told] : by_level)
      if (level.is_open() == is_open) loads.each.push_back(LoadOf(level, told));
  if (!warm_up_s.empty()) loads.warm_up_s = Median(warm_up_s);
  return loads;
}

}  // namespace pinion::harness
