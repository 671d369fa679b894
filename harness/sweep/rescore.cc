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

// What other limits leave of the search, in place of what the trial said of it.
void SetSearchCut(const std::string& cut, Json& info) {
  Json kept = Json::MakeArray();
  if (const Json* before = info.Find("cut"); before && before->is_array())
    for (const Json& one : before->array())
      if (!one.is_string() || !one.string().starts_with(kSearchNote)) kept.Append(one);
  if (!cut.empty()) kept.Append(cut);
  info.Set("cut", std::move(kept));
}

void RescoreTrial(const std::vector<RequestRow>& requests, const SloTarget& target,
                  TrialRow& trial) {
  std::map<LoadLevel, ServerLoadResult> loops, searched;
  for (const RequestRow& row : requests) {
    if (row.load == "batch") continue;
    ServerLoadResult& load = (row.load == "search" ? searched : loops)[row.level];
    load.open_loop = row.level.is_open();
    load.requests.push_back(row.record);
  }
  for (const auto& [level, load] : loops)
    SetGoodput(level, SummariseWindow(load, SteadyWindowOf(load, level), target.limits).goodput,
               trial);
  if (!trial.info.Find("slo")) return;
  SloLevels levels;
  for (const auto& [level, result] : searched) {
    const auto is_decided = [&, &sent = result](const RequestRecord& one) {
      return IsGood(one, sent.open_loop, target.limits).has_value();
    };
    if (std::all_of(result.requests.begin(), result.requests.end(), is_decided))
      levels[level.is_open() ? level.rate : level.clients] = RunOf(result, target.limits);
  }
  SetSearchCut(DescribeSearch(target, levels, trial.info, trial.samples), trial.info);
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
