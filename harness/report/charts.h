#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/results/results.h"

namespace pinion::harness {

// One chart of the report: data for a Vega-Lite specification, and a sentence with its conclusion.
struct Chart {
  std::string name;        // of its specification, reports/charts/NAME.vl.json
  std::string title;       // "Throughput against latency"
  std::string conclusion;  // one sentence
  Json values;             // an array of flat objects: the specification's data
  std::string absent;      // why there is nothing to draw; `values` is then empty
};
Chart Absent(const Chart& chart, std::string why);

// All charts, in the order of the page, drawn or absent.
std::vector<Chart> AllCharts(const Results& results);
// The charts that have something to draw.
std::vector<Chart> ChartsOf(const Results& results);

// Each function makes one chart. At most kChartCandidates
// configurations are drawn one by one: those that matter most, and the conclusion says so.
inline constexpr size_t kChartCandidates = 24;
Chart FrontierChart(const Results& results);      // throughput against latency
Chart SloChart(const Results& results);           // the largest load that meets the service level
Chart GoodputChart(const Results& results);       // that load, by the value of each setting
Chart BindingChart(const Results& results);       // binding x threads
Chart ScalingChart(const Results& results);       // throughput over threads
Chart RooflineChart(const Results& results);      // the machine's limits, and rates reached
Chart ImportanceChart(const Results& results);    // which setting changes most
Chart KvChart(const Results& results);            // KV space against clients
Chart PairedChart(const Results& results);        // ratios to the defaults, round by round
Chart DistributionChart(const Results& results);  // TTFT and gaps, default against recommended
Chart DriftChart(const Results& results);         // the defaults over the sweep, and disturbances
Chart PlacementChart(const Results& results);     // which rank computes on which CPUs
Chart PredictedChart(const Results& results);     // predicted against measured
Chart RaceChart(const Results& results);          // when configurations were dropped

// Shared by all charts.
// "default", "recommended" or "other"; "default" also if the defaults are recommended.
std::string RoleOf(const Results& results, const Candidate& candidate);
// The objective whose ratios the charts rank by: the definition's last (balanced, if there are
// all three).
Objective RankingObjective(const Results& results);
// The recommended candidate, unless it is the baseline; else nullptr.
const Candidate* WinnerOf(const Results& results);
// Measured candidates, best first by RankingObjective: the baseline, the recommended ones and the
// best of the others, at most `limit`.
std::vector<const Candidate*> MostTelling(const Results& results, size_t limit);

}  // namespace pinion::harness
