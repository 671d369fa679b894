#include "harness/sweep/rescore.h"

#include <algorithm>
#include <map>

#include "harness/load/slo_search.h"
#include "harness/load/steady.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

void SetGoodput(LoadLevel level, double value, TrialRow& trial) {
  std::erase_if(trial.samples, [&](const MetricValue& sample) {
    return sample.metric == "goodput" && sample.level == level;
  });
  trial.samples.push_back({"goodput", level, value});
}

// Adds a stored request to its load, which lasted from when the first was sent to the last end.
void AddRequest(const RequestRow& row, ServerLoadResult& load) {
  const RequestRecord& one = row.record;
  const bool is_first = load.requests.empty();
  load.open_loop = row.level.is_open();
  load.start_ns = is_first ? one.sent_ns : std::min(load.start_ns, one.sent_ns);
  load.end_ns = is_first ? one.ended_ns : std::max(load.end_ns, one.ended_ns);
  load.requests.push_back(one);
}

void RescoreTrial(const std::vector<RequestRow>& requests, const SloTarget& target,
                  TrialRow& trial) {
  std::map<LoadLevel, ServerLoadResult> loops, searched;
  for (const RequestRow& row : requests) {
    if (row.load == "batch") continue;
    AddRequest(row, (row.load == "search" ? searched : loops)[row.level]);
  }
  for (const auto& [level, load] : loops)
    SetGoodput(level, SummariseWindow(load, SteadyWindowOf(load, level), target.limits).goodput,
               trial);
  if (!trial.info.slo) return;
  SloLevels levels;
  for (const auto& [level, result] : searched) {
    const auto is_decided = [&, &sent = result](const RequestRecord& one) {
      return IsGood(one, sent.open_loop, target.limits).has_value();
    };
    if (std::all_of(result.requests.begin(), result.requests.end(), is_decided))
      levels[level.is_open() ? level.rate : level.clients] = RunOf(result, target.limits);
  }
  DescribeSearch(target, levels, trial.info, trial.samples);
}

}  // namespace

Status Rescore(Store& store, const SloTarget& target, std::vector<TrialRow>& trials) {
  for (TrialRow& trial : trials) {
    if (!trial.ok) continue;
    PINION_ASSIGN(const std::vector<RequestRow> requests, store.Requests(trial));
    RescoreTrial(requests, target, trial);
  }
  return {};
}

}  // namespace pinion::harness
