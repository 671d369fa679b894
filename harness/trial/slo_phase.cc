#include "harness/trial/slo_phase.h"

#include <map>

namespace pinion::harness {
namespace {

constexpr int kMaxRuns = 6;

SloSearchOptions OptionsOf(const SloTarget& target) {
  SloSearchOptions options;
  options.whole = !target.by_rate;
  options.low = options.whole ? 1 : 0.001;
  options.high = options.whole ? 4096 : 10'000;
  options.start = target.start;
  options.attain = target.attain;
  options.resolution = 0.2;  // coarse: the other trials of the sweep search too
  options.repeats = 1;
  options.max_runs = kMaxRuns;
  return options;
}

// Whether a request that is unfinished at `now_ns` can no longer meet the limits.
bool HasMissed(const RequestTrace& times, int64_t now_ns, const Slo& limits) {
  const double age_s = static_cast<double>(now_ns - times.sent_ns) * 1e-9;
  const double ttft_s = times.token_ns.empty() ? age_s : TtftSeconds(times);
  return (limits.ttft_s && ttft_s > *limits.ttft_s) || (limits.e2el_s && age_s > *limits.e2el_s);
}

}  // namespace

void Judge(const RequestTrace& times, bool complete, int64_t cut_ns, const Slo& limits,
           LevelRun& level) {
  if (!complete && cut_ns != INT64_MAX && !HasMissed(times, cut_ns, limits)) return;
  ++level.total;
  level.good += complete && Meets(times, limits) ? 1 : 0;
}

void SearchInTrial(const SloTarget& target,
                   const std::function<Result<LevelRun>(double load, size_t runs_left)>& run,
                   TrialResult& result) {
  std::map<double, LevelRun> levels;
  size_t runs_left = kMaxRuns;
  const auto told = [&](double load) -> Result<LevelRun> {
    PINION_ASSIGN(const LevelRun level, run(load, runs_left--));
    levels[load].good += level.good;
    levels[load].total += level.total;
    return level;
  };
  const auto found = FindSloBoundary(OptionsOf(target), told);
  Json list = Json::MakeArray();
  for (const auto& [load, level] : levels) {
    if (level.total == 0) continue;
    Json one = Json::MakeObject();
    one.Set("load", load);
    one.Set("good", static_cast<int64_t>(level.good));
    one.Set("total", static_cast<int64_t>(level.total));
    list.Append(std::move(one));
  }
  Json slo = Json::MakeObject();
  slo.Set("unit", target.unit());
  slo.Set("levels", std::move(list));
  result.info.Set("slo", std::move(slo));
  if (found && found->pass)
    result.samples.push_back({"slo_load", 0, found->levels[*found->pass].load});
}

}  // namespace pinion::harness
