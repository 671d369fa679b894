// What happened round by round: paired differences, the two ends of latency, drift.

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/strings.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

// "round 3", or "confirmation 3".
std::string RoundName(const Sample& sample) {
  return StrCat(sample.confirmation ? "confirmation " : "round ", sample.round);
}

// The recommended candidate that is not the defaults, where there is one.
const Candidate* Winner(const Results& results) {
  for (const Verdict& verdict : results.verdicts)
    if (const Candidate* candidate = results.Find(verdict.recommended);
        candidate && !candidate->is_anchor)
      return candidate;
  return nullptr;
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

}  // namespace

Chart PairedChart(const Results& results) {
  Chart chart{"paired", "Paired differences", "", Json::MakeArray()};
  const Objective objective = RankingObjective(results);
  const Verdict* verdict = results.FindVerdict(objective);
  const double floor = verdict ? verdict->floor * 100 : 0;
  const auto telling = MostTelling(results, kChartCandidates);
  const Candidate* best = nullptr;
  for (const Candidate* candidate : telling) {
    const Comparison* comparison = candidate->Find(objective);
    if (candidate->is_anchor || !comparison) continue;
    if (!best) best = candidate;
    for (const Sample& ratio : comparison->ratios)
      chart.values.Append(Json::Object{{"configuration", SettingsText(*candidate)},
                                       {"role", RoleOf(results, *candidate)},
                                       {"percent", (ratio.value - 1) * 100},
                                       {"round", RoundName(ratio)},
                                       {"median", (comparison->ratio.median - 1) * 100},
                                       {"floor", floor}});
  }
  if (!best) return chart;
  const auto& ratios = best->Find(objective)->ratios;
  const auto above = std::count_if(ratios.begin(), ratios.end(),
                                   [](const Sample& ratio) { return ratio.value > 1; });
  chart.conclusion = StrCat("One dot a round, ", Name(objective),
                            " against the defaults of the same round: ", SettingsText(*best),
                            " was ahead in ", above, " of ", ratios.size(), ".");
  if (telling.size() < results.candidates.size() && telling.size() == kChartCandidates)
    chart.conclusion += StrCat(" Drawn: the ", kChartCandidates, " best.");
  return chart;
}

Chart TrialsChart(const Results& results) {
  Chart chart{"trials", "First token and token gaps", "", Json::MakeArray()};
  const Candidate* winner = Winner(results);
  for (const Candidate& candidate : results.candidates) {
    if (!candidate.is_anchor && &candidate != winner) continue;
    for (const auto& [metric, title] :
         {std::pair{"ttft_s", "time to first token"}, std::pair{"itl_s", "gap between tokens"}})
      for (const int concurrency : results.definition.workload.concurrency) {
        const Series* series = candidate.Find(metric, concurrency);
        if (!Measured(series)) continue;
        for (const Sample& sample : series->samples)
          chart.values.Append(Json::Object{
              {"what", StrCat(title, ", ", Counted(static_cast<size_t>(concurrency), "client"))},
              {"configuration", SettingsText(candidate)},
              {"role", candidate.is_anchor ? "default" : "recommended"},
              {"ms", sample.value * 1e3},
              {"round", RoundName(sample)}});
      }
  }
  chart.conclusion = StrCat("Each tick is a trial's median over its requests; ",
                            winner ? "defaults against " + SettingsText(*winner) + "."
                                   : std::string("the defaults alone, because nothing beat them."));
  return chart;
}

Chart DriftChart(const Results& results) {
  Chart chart{"drift", "Drift over the sweep", "", Json::MakeArray()};
  if (results.candidates.empty()) return chart;
  const Series* series = results.candidates.front().Find("output_tokens_per_s", 0);
  if (!Measured(series)) return chart;
  size_t disturbed = 0;
  int order = 0;
  for (const Sample& sample : series->samples) {
    disturbed += sample.suspect ? 1 : 0;
    chart.values.Append(
        Json::Object{{"order", ++order},
                     {"round", RoundName(sample)},
                     {"tokens_per_s", sample.value},
                     {"percent", (sample.value / series->estimate.median - 1) * 100},
                     {"state", sample.suspect ? "disturbed" : "quiet"}});
  }
  char text[160];
  std::snprintf(text, sizeof text,
                "The defaults' own batch output moved by %.0f %% between rounds; %zu of %zu were "
                "disturbed by other work on the machine.",
                100 * Swing(*series), disturbed, series->samples.size());
  chart.conclusion = text;
  return chart;
}

}  // namespace pinion::harness
