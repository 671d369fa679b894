// Goodput beside the axes: the highest load that meets the SLO, by the value of each setting.

#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/strings.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

const Estimate* GoodputOf(const Candidate& candidate) {
  const Series* series = candidate.Find("slo_load", 0);
  return series ? &series->estimate : nullptr;
}

// A key, within its engine if several race: those engines have settings of their own.
using Axis = std::pair<std::string, std::string>;
using CandidatesByValue = std::map<std::string, std::vector<const Candidate*>>;

// The measured candidates by their value of each axis that has two values or more.
std::map<Axis, CandidatesByValue> AxesOf(const Results& results) {
  std::map<Axis, CandidatesByValue> axes;
  for (const Candidate& candidate : results.candidates)
    for (const Setting& setting : candidate.settings) axes[{candidate.engine, setting.key}];
  for (auto& [axis, values] : axes)
    for (const Candidate& candidate : results.candidates) {
      if (candidate.engine != axis.first || !GoodputOf(candidate)) continue;
      const auto own =
          std::find_if(candidate.settings.begin(), candidate.settings.end(),
                       [&key = axis.second](const Setting& one) { return one.key == key; });
      values[own == candidate.settings.end() ? "default" : own->value].push_back(&candidate);
    }
  std::erase_if(axes, [](const auto& one) { return one.second.size() < 2; });
  return axes;
}

// One value of an axis: the median of its candidates' goodput, and the range of their intervals.
struct Level {
  std::string label;
  double load = 0, low = 0, high = 0;
  const Candidate* best = nullptr;
  size_t candidates = 0;
};

Level LevelOf(std::string label, const std::vector<const Candidate*>& candidates) {
  Level level{std::move(label), 0, 0, 0, nullptr, candidates.size()};
  std::vector<double> loads;
  for (const Candidate* candidate : candidates) {
    const Estimate& goodput = *GoodputOf(*candidate);
    const double low = goodput.interval ? goodput.interval->low : goodput.median;
    const double high = goodput.interval ? goodput.interval->high : goodput.median;
    level.low = loads.empty() ? low : std::min(level.low, low);
    level.high = loads.empty() ? high : std::max(level.high, high);
    if (!level.best || goodput.median > GoodputOf(*level.best)->median) level.best = candidate;
    loads.push_back(goodput.median);
  }
  level.load = MedianInPlace(loads);
  return level;
}

Json RowOf(const Results& results, const std::string& setting, const Level& level) {
  return Json::Object{{"setting", setting},
                      {"label", level.label},
                      {"load", level.load},
                      {"low", level.low},
                      {"high", level.high},
                      {"text", Printf("%.3g", level.load)},
                      {"role", RoleOf(results, *level.best)},
                      {"configurations", static_cast<uint64_t>(level.candidates)},
                      {"configuration", SettingsText(*level.best)}};
}

}  // namespace

Chart GoodputChart(const Results& results) {
  Chart chart{"goodput", "Goodput by setting", "", Json::MakeArray(), ""};
  const auto& slo = results.definition.workload.slo;
  if (!slo) return Absent(chart, "the sweep had no SLO to search for");
  const bool is_race = results.definition.engines.size() > 1;
  double widest = 0;
  for (const auto& [axis, values] : AxesOf(results)) {
    const std::string setting = is_race ? StrCat(axis.first, ": ", axis.second) : axis.second;
    std::vector<Level> levels;
    for (const auto& [value, candidates] : values)
      levels.push_back(LevelOf(StrCat(setting, "=", value), candidates));
    std::stable_sort(levels.begin(), levels.end(),
                     [](const Level& a, const Level& b) { return a.load > b.load; });
    for (const Level& level : levels) chart.values.Append(RowOf(results, setting, level));
    const Level &most = levels.front(), &least = levels.back();
    if (least.load <= 0 || most.load / least.load <= widest) continue;
    widest = most.load / least.load;
    chart.conclusion = StrCat(
        most.label, " carries ", Printf("%.3g", most.load), " ", slo->unit(), " within the SLO, ",
        least.label, " ", Printf("%.3g", least.load), ": no other setting makes more difference. ",
        "Line: from the lowest to the highest end of the configurations' intervals.");
  }
  if (!chart.values.array().empty()) return chart;
  return Absent(chart, "no setting was measured with two values under the SLO");
}

}  // namespace pinion::harness
