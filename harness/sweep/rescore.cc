#include "harness/sweep/rescore.h"

#include <algorithm>
#include <map>
#include <span>

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

using Requests = std::span<const RequestRow>;

void RescoreLoads(Requests requests, const SloTarget& target, TrialRow& trial) {
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

bool IsJudged(const MetricValue& sample) {
  return sample.metric == "goodput" || sample.metric == "slo_load";
}

// Of a trial in turns: between its waves the other side was loaded, so that each is judged by
// itself. The trial has their means, and so has a verdict on the pair their own figures.
void RescoreWaves(Requests requests, const SloTarget& target, TrialRow& trial) {
  TrialInfo& info = trial.info;
  SearchedLevels found{target.unit(), {}};
  for (size_t i = 0; i < info.waves.size(); ++i) {
    const auto count = static_cast<size_t>(info.wave_requests[i]);
    TrialRow wave;
    wave.samples = std::move(info.waves[i]);
    if (info.slo) wave.info.slo.emplace();
    RescoreLoads(requests.first(count), target, wave);
    requests = requests.subspan(count);
    info.waves[i] = std::move(wave.samples);
    if (wave.info.slo) Pool(*wave.info.slo, found);
  }
  if (info.slo) DescribeSearch(target, found.levels, info, trial.samples);
  std::erase_if(trial.samples, IsJudged);
  for (const MetricValue& mean : MeansOf(info.waves))
    if (IsJudged(mean)) trial.samples.push_back(mean);
}

// Whether it is known which request is of which wave.
bool HasWaves(Requests requests, const TrialInfo& info) {
  size_t left = requests.size();
  for (const int count : info.wave_requests) {
    if (count < 0 || static_cast<size_t>(count) > left) return false;
    left -= static_cast<size_t>(count);
  }
  return !info.waves.empty() && info.wave_requests.size() == info.waves.size() && left == 0;
}

}  // namespace

Status Rescore(Store& store, const SloTarget& target, std::vector<TrialRow>& trials) {
  for (TrialRow& trial : trials) {
    if (!trial.ok) continue;
    PINION_ASSIGN(const std::vector<RequestRow> requests, store.Requests(trial));
    (HasWaves(requests, trial.info) ? RescoreWaves : RescoreLoads)(requests, target, trial);
  }
  return {};
}

}  // namespace pinion::harness
