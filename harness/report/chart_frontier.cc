// Throughput against latency, with the Pareto front.

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/frontier.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

void SetInterval(Json& row, const char* low, const char* high, const Estimate& estimate) {
  row.Set(low, estimate.interval ? estimate.interval->low : estimate.median);
  row.Set(high, estimate.interval ? estimate.interval->high : estimate.median);
}

Json RowOf(const Results& results, const FrontPoint& point) {
  const Estimate &latency = point.latency->estimate, &throughput = point.throughput->estimate;
  Json row = Json::Object{{"configuration", SettingsText(*point.candidate)},
                          {"role", RoleOf(results, *point.candidate)},
                          {"loop", point.level.is_open() ? "open" : "closed"},
                          {"size", point.level.is_open() ? point.level.rate : point.level.clients},
                          {"load", LevelText(point.level)},
                          {"latency_s", latency.median},
                          {"tokens_per_s", throughput.median},
                          {"front", Name(point.front)}};
  SetInterval(row, "latency_low", "latency_high", latency);
  SetInterval(row, "tokens_low", "tokens_high", throughput);
  return row;
}

// "3 of 12 configurations touch the Pareto front (dashed); 2 more may (dotted rings): ..."
std::string FrontSentence(const std::vector<FrontPoint>& points) {
  std::set<const Candidate*> all, on, possible;
  for (const FrontPoint& point : points) {
    all.insert(point.candidate);
    if (point.front == Front::kOn) on.insert(point.candidate);
    if (point.front == Front::kPossible) possible.insert(point.candidate);
  }
  for (const Candidate* candidate : on) possible.erase(candidate);
  const std::string text =
      StrCat(on.size(), " of ", Counted(all.size(), "configuration"),
             on.size() == 1 ? " touches" : " touch", " the Pareto front (dashed)");
  if (possible.empty()) return text;
  return StrCat(
      text, "; ", possible.size(),
      " more may belong to it (dotted rings): the points that beat them may do so by chance");
}

std::string Conclusion(const std::vector<FrontPoint>& points, size_t drawn) {
  const FrontPoint* top = &points.front();
  std::set<const Candidate*> all;
  for (const FrontPoint& point : points) {
    all.insert(point.candidate);
    if (point.throughput->estimate.median > top->throughput->estimate.median) top = &point;
  }
  std::string text = StrCat(FrontSentence(points), "; the highest throughput, ",
                            FormatFigure("tokens/s", top->throughput->estimate.median),
                            ", comes from ", SettingsText(*top->candidate),
                            top->level.is_open() ? " at " : " with ", LevelText(top->level), ".");
  const auto open = [](const FrontPoint& point) { return point.level.is_open(); };
  if (std::any_of(points.begin(), points.end(), open))
    text += " Diamonds mark open loops (fixed request rates).";
  if (drawn < all.size())
    text += drawn > 0 ? StrCat(" Shown: the front and the ", drawn, " best configurations.")
                      : " Shown: the front.";
  return text;
}

}  // namespace

Chart FrontierChart(const Results& results) {
  Chart chart{"frontier", "Throughput against latency", "", Json::MakeArray(), ""};
  const std::vector<FrontPoint> points = FrontOf(results);
  if (points.empty()) return Absent(chart, "no client request has finished yet");
  const auto telling = MostTelling(results, kChartCandidates);
  const std::set<const Candidate*> drawn(telling.begin(), telling.end());
  for (const FrontPoint& point : points)
    if (point.front != Front::kOff || drawn.count(point.candidate))
      chart.values.Append(RowOf(results, point));
  chart.conclusion = Conclusion(points, drawn.size());
  return chart;
}

}  // namespace pinion::harness
