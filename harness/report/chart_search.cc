// Charts of the search: predictions against measurements, and when configurations were dropped.

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

double PredictedRate(const Candidate& candidate) {
  const Json* rate = candidate.predicted.Find("output_tokens_per_s");
  return rate && rate->is_number() ? rate->number() : 0;
}

// Rounds of the race in which the candidate was measured.
size_t RoundsIn(const Candidate& candidate) {
  std::set<int> rounds;
  for (const Series& series : candidate.series)
    for (const Sample& sample : series.samples)
      if (!sample.confirmation) rounds.insert(sample.round);
  return rounds.size();
}

}  // namespace

Chart PredictedChart(const Results& results) {
  Chart chart{"predicted", "Predicted against measured", "", Json::MakeArray(), ""};
  std::vector<double> shares;
  for (const Candidate& candidate : results.candidates) {
    const double predicted = PredictedRate(candidate);
    const Series* output = candidate.Find("output_tokens_per_s", 0);
    if (predicted <= 0 || !output) continue;
    shares.push_back(output->estimate.median / predicted);
    chart.values.Append(Json::Object{{"configuration", SettingsText(candidate)},
                                     {"role", RoleOf(results, candidate)},
                                     {"predicted", predicted},
                                     {"measured", output->estimate.median}});
  }
  if (shares.empty())
    return Absent(
        chart,
        "there are no predictions: run `pinion probe --out FILE`, then sweep with --probe FILE");
  if (shares.size() < 2) return Absent(chart, "only one configuration was measured");
  const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
  chart.conclusion =
      StrCat("The line is the machine's measured limit; configurations reached ",
             Printf("%.0f", *low * 100), " to ", Printf("%.0f %% of it.", *high * 100));
  return chart;
}

Chart RaceChart(const Results& results) {
  Chart chart{"race", "Configurations dropped by round", "", Json::MakeArray(), ""};
  size_t raced = 0, left = 0, measured = 0;
  for (const Candidate& candidate : results.candidates) {
    const size_t rounds = RoundsIn(candidate);
    if (rounds == 0) continue;
    ++raced;
    measured += rounds;
    left += candidate.status == CandidateStatus::kDropped ? 1 : 0;
  }
  if (left == 0) return Absent(chart, "no configuration was dropped");
  for (const Candidate* candidate : MostTelling(results, kChartCandidates)) {
    const bool dropped = candidate->status == CandidateStatus::kDropped;
    chart.values.Append(Json::Object{{"configuration", SettingsText(*candidate)},
                                     {"rounds", static_cast<uint64_t>(RoundsIn(*candidate))},
                                     {"state", dropped ? "dropped" : "kept"},
                                     {"reason", candidate->reason}});
  }
  const size_t whole = raced * static_cast<size_t>(std::max(1, results.rounds_done));
  chart.conclusion =
      StrCat(left, " of ", Counted(raced, "configuration"), left == 1 ? " was" : " were",
             " dropped early: the race ran ", 100 * measured / whole,
             " % of the trials that a full grid would have run.");
  return chart;
}

}  // namespace pinion::harness
