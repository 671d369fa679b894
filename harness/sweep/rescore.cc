#include "harness/sweep/rescore.h"

#include <algorithm>
#include <map>

#include "harness/load/slo_search.h"
#include "harness/load/steady.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

void SetGoodput(int concurrency, double value, TrialRow& trial) {
  std::erase_if(trial.samples, [&](const MetricValue& sample) {
    return sample.metric == "goodput" && sample.concurrency == concurrency;
  });
  trial.samples.push_back({"goodput", concurrency, value});
}

void RescoreTrial(const std::vector<RequestRow>& requests, const SloTarget& target,
                  TrialRow& trial) {
  std::map<int, ServerLoadResult> loops;        // by clients
  std::map<double, ServerLoadResult> searched;  // by rate, or by clients
  for (const RequestRow& row : requests) {
    if (row.load == "clients") loops[row.concurrency].requests.push_back(row.record);
    if (row.load != "search") continue;
    ServerLoadResult& load = searched[row.rate.value_or(row.concurrency)];
    load.open_loop = row.rate.has_value();
    load.requests.push_back(row.record);
  }
  for (const auto& [clients, load] : loops)
    SetGoodput(clients, SummariseWindow(load, SteadyWindowOf(load, clients), target.limits).goodput,
               trial);
  if (!trial.info.Find("slo")) return;
  SloLevels levels;
  for (const auto& [load, result] : searched) {
    const auto is_decided = [&, &sent = result](const RequestRecord& one) {
      return IsGood(one, sent.open_loop, target.limits).has_value();
    };
    if (std::all_of(result.requests.begin(), result.requests.end(), is_decided))
      levels[load] = RunOf(result, target.limits);
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
