#include "harness/trial/slo_phase.h"

#include <cmath>
#include <vector>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

SloSearchOptions OptionsOf(const SloTarget& target, double start) {
  SloSearchOptions options;
  options.whole = !target.by_rate;
  options.low = options.whole ? 1 : 0.001;
  options.high = options.whole ? 4096 : 10'000;
  options.start = start;
  options.attain = target.attain;
  options.resolution = 0.2;
  options.repeats = 1;
  options.max_runs = static_cast<int>(kSloRuns);
  return options;
}

// Whether the levels tell a load and not merely that it is more, or less, than those that were
// tried: one passes and the next fails, or no load beyond them would have been tried. A search
// whose loads all fail halves them, and has gone as far as it may after kSloRuns.
bool EnclosesItsLoad(const SloBoundary& found, const SloSearchOptions& options) {
  const double lowest = found.levels.front().load, highest = found.levels.back().load;
  if (!found.fail) return highest >= options.high;
  if (found.pass) return true;
  const double halved = std::pow(2, static_cast<double>(kSloRuns) - 1);
  return lowest <= options.low || highest / lowest >= halved;
}

}  // namespace

double FirstLoad(const SloTarget& target, double requests_per_s) {
  if (target.start) return *target.start;
  if (!target.by_rate) return 2;
  if (requests_per_s <= 0) return 1;
  // Powers of the square root of 2, which are also the steps of the search.
  return std::pow(2, std::floor(2 * std::log2(requests_per_s / 2)) / 2);
}

int RequestsToJudge(const SloTarget& target, double load) {
  constexpr double kMost = 200, kMisses = 2, kRounding = 1e-6;
  const double misses = std::min(kMost, kMisses / std::max(1e-3, 1 - target.attain));
  const Slo& limits = target.limits;
  // A fifth above the capacity, the search's resolution, the queue grows by a fifth of the time.
  const double lasts_s = 5 * limits.ttft_s.value_or(limits.e2el_s.value_or(0));
  const double needed = std::max(misses, target.by_rate ? load * lasts_s : 2 * load);
  return static_cast<int>(std::ceil(needed - kRounding));
}

SloLevels SearchInTrial(const SloTarget& target, double start,
                        const std::function<Result<LevelRun>(double load)>& run) {
  SloLevels levels;
  const auto told = [&](double load) -> Result<LevelRun> {
    PINION_ASSIGN(const LevelRun level, run(load));
    levels[load].good += level.good;
    levels[load].total += level.total;
    return level;
  };
  // An error ends it: DescribeSearch judges the levels so far.
  (void)FindSloBoundary(OptionsOf(target, start), told);
  return levels;
}

void DescribeSearch(const SloTarget& target, const SloLevels& levels, TrialInfo& info,
                    std::vector<MetricValue>& samples) {
  info.slo = {target.unit(), levels};
  std::erase_if(info.slo->levels, [](const auto& level) { return level.second.total == 0; });
  std::vector<SloLevel> tried;
  for (const auto& [load, level] : info.slo->levels) {
    SloLevel& one = tried.emplace_back();
    one.load = load;
    one.runs = 1;
    one.good = level.good;
    one.total = level.total;
  }
  std::erase_if(info.cut,
                [](const std::string& one) { return one == kSearchCut || one == kSearchLeftOut; });
  std::erase_if(samples, [](const MetricValue& one) { return one.metric == "slo_load"; });
  if (tried.empty()) return info.cut.push_back(kSearchLeftOut);
  const SloBoundary boundary = JudgeLevels(std::move(tried), target.attain);
  if (!EnclosesItsLoad(boundary, OptionsOf(target, 1))) return info.cut.push_back(kSearchCut);
  samples.push_back({"slo_load", 0, *LoadAttaining(boundary, target.attain)});
}

}  // namespace pinion::harness
