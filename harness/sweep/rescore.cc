#include "harness/sweep/rescore.h"

#include <algorithm>
#include <map>

#include "harness/load/summary.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

void SetGoodput(int concurrency, double value, TrialRow& trial) {
  std::erase_if(trial.samples, [&](const MetricValue& sample) {
    return sample.metric == "goodput" && sample.concurrency == concurrency;
  });
  trial.samples.push_back({"goodput", concurrency, value});
}

Json LevelsJson(const std::map<double, LevelRun>& levels) {
  Json list = Json::MakeArray();
  for (const auto& [load, level] : levels)
    if (level.total > 0)
      list.Append(Json::Object{{"load", load},
                               {"good", static_cast<int64_t>(level.good)},
                               {"total", static_cast<int64_t>(level.total)}});
  return list;
}

void RescoreTrial(const std::vector<RequestRow>& requests, const Slo& limits, TrialRow& trial) {
  std::map<int, ServerLoadResult> loops;  // by clients
  std::map<double, LevelRun> levels;      // by rate, or by clients
  for (const RequestRow& row : requests) {
    const RequestRecord& one = row.record;
    if (row.load == "clients") loops[row.concurrency].requests.push_back(one);
    if (row.load != "search") continue;
    const RequestTrace times{row.rate ? one.scheduled_ns : one.sent_ns, one.token_ns, one.tokens()};
    Judge(times, one.complete(), one.cut ? one.ended_ns : INT64_MAX, limits,
          levels[row.rate.value_or(row.concurrency)]);
  }
  for (const auto& [clients, load] : loops)
    SetGoodput(clients, Summarise(TracesOf(load), limits).goodput, trial);
  if (const Json* slo = trial.info.Find("slo")) {
    Json counted = *slo;
    counted.Set("levels", LevelsJson(levels));
    trial.info.Set("slo", std::move(counted));
  }
}

}  // namespace

Status Rescore(Store& store, const Slo& limits, std::vector<TrialRow>& trials) {
  for (TrialRow& trial : trials) {
    if (!trial.ok) continue;
    PINION_ASSIGN(const std::vector<RequestRow> requests, store.Requests(trial));
    RescoreTrial(requests, limits, trial);
  }
  return {};
}

}  // namespace pinion::harness
