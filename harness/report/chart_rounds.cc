// Charts by round: paired differences, and drift with its disturbances.

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// "round 3", or "confirmation 3".
std::string RoundName(const Sample& sample) {
  return StrCat(sample.confirmation ? "confirmation " : "round ", sample.round);
}

// How far a series moved between its smallest and its largest sample, as a fraction.
double Swing(const Series& series) {
  double low = INFINITY, high = 0;
  for (const Sample& sample : series.samples) {
    low = std::min(low, sample.value);
    high = std::max(high, sample.value);
  }
  return low > 0 && std::isfinite(low) ? high / low - 1 : 0;
}

// A trial yields each metric once, so that samples of two series lie at the same places.
double ShareAt(const Series* series, size_t index) {
  return series && index < series->samples.size() ? series->samples[index].value : 0;
}

}  // namespace

Chart PairedChart(const Results& results) {
  Chart chart{"paired", "Paired differences", "", Json::MakeArray(), ""};
  const Objective objective = RankingObjective(results);
  const double floor = results.FloorOf(objective) * 100;
  const auto telling = MostTelling(results, kChartCandidates);
  const Candidate* best = nullptr;
  for (const Candidate* candidate : telling) {
    const Comparison* comparison = candidate->Find(objective);
    if (candidate->is_baseline || !comparison) continue;
    if (!best) best = candidate;
    for (const Sample& ratio : comparison->ratios)
      chart.values.Append(Json::Object{{"configuration", SettingsText(*candidate)},
                                       {"role", RoleOf(results, *candidate)},
                                       {"percent", (ratio.value - 1) * 100},
                                       {"round", RoundName(ratio)},
                                       {"median", (comparison->ratio.median - 1) * 100},
                                       {"floor", floor}});
  }
  if (!best) return Absent(chart, "only the defaults were measured");
  const auto& ratios = best->Find(objective)->ratios;
  const auto above = std::count_if(ratios.begin(), ratios.end(),
                                   [](const Sample& ratio) { return ratio.value > 1; });
  chart.conclusion =
      StrCat("One dot per round, ", Name(objective),
             " against the defaults of the same round: ", SettingsText(*best), " was ahead in ",
             above, " of ", ratios.size(), ". Tick: median; grey: noise floor.");
  if (telling.size() < results.candidates.size() && telling.size() == kChartCandidates)
    chart.conclusion += StrCat(" Shown: the ", kChartCandidates, " best.");
  return chart;
}

Chart DriftChart(const Results& results) {
  Chart chart{"drift", "Drift over the sweep", "", Json::MakeArray(), ""};
  const Candidate* baseline = results.Find(0);
  const std::vector<LoadLevel> loops = results.definition.workload.levels();
  if (!RunsBatch(results.definition) && loops.empty())
    return Absent(chart, "neither a batch nor a loop was run");
  const LoadLevel load = RunsBatch(results.definition) ? LoadLevel() : loops.front();
  const Series* series = baseline ? baseline->Find("output_tokens_per_s", load) : nullptr;
  if (!series || series->samples.size() < 2)
    return Absent(chart, "the defaults were not measured twice");
  const Series *steal = baseline->Find("steal_share", 0),
               *pressure = baseline->Find("cpu_pressure_share", 0);
  size_t disturbed = 0;
  double worst_steal = 0, worst_pressure = 0;
  for (size_t i = 0; i < series->samples.size(); ++i) {
    const Sample& sample = series->samples[i];
    const double stolen = ShareAt(steal, i), waited = ShareAt(pressure, i);
    worst_steal = std::max(worst_steal, stolen);
    worst_pressure = std::max(worst_pressure, waited);
    disturbed += sample.suspect ? 1 : 0;
    chart.values.Append(
        Json::Object{{"order", static_cast<uint64_t>(i + 1)},
                     {"round", RoundName(sample)},
                     {"tokens_per_s", sample.value},
                     {"percent", (sample.value / series->estimate.median - 1) * 100},
                     {"steal", stolen * 100},
                     {"CPU pressure", waited * 100},
                     {"state", sample.suspect ? "disturbed" : "quiet"}});
  }
  chart.conclusion = StrCat("The defaults' own output ",
                            load.any() ? StrCat("under ", LevelText(load)) : "of the batch",
                            " moved by ", FormatShareOrFactor(Swing(*series)),
                            " between rounds; other work on the machine disturbed ", disturbed,
                            " of ", series->samples.size(), " (steal up to ", Percent(worst_steal),
                            ", CPU pressure up to ", Printf("%.0f %%", 100 * worst_pressure), ").");
  return chart;
}

}  // namespace pinion::harness
