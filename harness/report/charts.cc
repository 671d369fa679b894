#include "harness/report/charts.h"

#include <algorithm>

namespace pinion::harness {

std::string RoleOf(const Results& results, const Candidate& candidate) {
  if (candidate.is_baseline) return "default";
  for (const Verdict& verdict : results.verdicts)
    if (verdict.recommended == candidate.id) return "recommended";
  return "other";
}

Objective RankingObjective(const Results& results) {
  const auto& objectives = results.definition.objectives;
  return objectives.empty() ? Objective::kThroughput : objectives.back();
}

std::vector<const Candidate*> MostTelling(const Results& results, size_t limit) {
  const Objective objective = RankingObjective(results);
  std::vector<const Candidate*> chosen;
  for (const Candidate& candidate : results.candidates)
    if (candidate.Ratio(objective) > 0 && !candidate.series.empty()) chosen.push_back(&candidate);
  const auto better = [&](const Candidate* a, const Candidate* b) {
    return a->Ratio(objective) > b->Ratio(objective);
  };
  const auto matters_more = [&](const Candidate* a, const Candidate* b) {
    const bool marked_a = RoleOf(results, *a) != "other", marked_b = RoleOf(results, *b) != "other";
    return marked_a != marked_b ? marked_a : better(a, b);
  };
  std::stable_sort(chosen.begin(), chosen.end(), matters_more);
  if (chosen.size() > limit) chosen.resize(limit);
  std::stable_sort(chosen.begin(), chosen.end(), better);
  return chosen;
}

const Candidate* WinnerOf(const Results& results) {
  for (const Verdict& verdict : results.verdicts)
    if (const Candidate* candidate = results.Find(verdict.recommended);
        candidate && !candidate->is_baseline)
      return candidate;
  return nullptr;
}

Chart Absent(const Chart& chart, std::string why) {
  return {chart.name, chart.title, "", Json::MakeArray(), std::move(why)};
}

std::vector<Chart> AllCharts(const Results& results) {
  // The page puts two side by side: neighbours are of about the same height.
  constexpr Chart (*kMakers[])(const Results&) = {
      FrontierChart, SloChart,        RooflineChart,     ScalingChart,  PairedChart,
      RaceChart,     ImportanceChart, BindingChart,      DriftChart,    PredictedChart,
      KvChart,       GoodputChart,    DistributionChart, PlacementChart};
  std::vector<Chart> charts;
  for (const auto make : kMakers) {
    charts.push_back(make(results));
    // Capitalise the sentence, unless it begins with a setting's name.
    std::string& sentence = charts.back().conclusion;
    if (sentence.starts_with("the ")) sentence[0] = 'T';
  }
  return charts;
}

std::vector<Chart> ChartsOf(const Results& results) {
  std::vector<Chart> charts = AllCharts(results);
  std::erase_if(charts, [](const Chart& chart) { return !chart.absent.empty(); });
  return charts;
}

}  // namespace pinion::harness
