// Throughput against latency, with the Pareto front.

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

struct Point {
  const Candidate* candidate;
  LoadLevel level;
  const Estimate *latency, *throughput;
  bool on_front = false;
};

std::vector<Point> PointsOf(const Results& results) {
  std::vector<Point> points;
  for (const Candidate& candidate : results.candidates)
    for (const LoadLevel level : results.definition.workload.levels()) {
      const Series* latency = candidate.Find("e2el_s", level);
      const Series* throughput = candidate.Find("output_tokens_per_s", level);
      if (Measured(latency) && Measured(throughput))
        points.push_back({&candidate, level, &latency->estimate, &throughput->estimate});
    }
  return points;
}

// In order of latency, a point is on the front if no point at least as fast has more throughput.
void MarkFront(std::vector<Point>& points) {
  std::vector<Point*> order;
  for (Point& point : points) order.push_back(&point);
  std::sort(order.begin(), order.end(), [](const Point* a, const Point* b) {
    return std::pair(a->latency->median, -a->throughput->median) <
           std::pair(b->latency->median, -b->throughput->median);
  });
  double best = 0;
  for (Point* point : order) {
    point->on_front = point->throughput->median > best;
    best = std::max(best, point->throughput->median);
  }
}

void SetInterval(Json& row, const char* low, const char* high, const Estimate& estimate) {
  row.Set(low, estimate.interval ? estimate.interval->low : estimate.median);
  row.Set(high, estimate.interval ? estimate.interval->high : estimate.median);
}

Json RowOf(const Results& results, const Point& point) {
  Json row = Json::Object{{"configuration", SettingsText(*point.candidate)},
                          {"role", RoleOf(results, *point.candidate)},
                          {"loop", point.level.is_open() ? "open" : "closed"},
                          {"size", point.level.is_open() ? point.level.rate : point.level.clients},
                          {"load", LevelText(point.level)},
                          {"latency_s", point.latency->median},
                          {"tokens_per_s", point.throughput->median},
                          {"front", point.on_front}};
  SetInterval(row, "latency_low", "latency_high", *point.latency);
  SetInterval(row, "tokens_low", "tokens_high", *point.throughput);
  return row;
}

std::string Conclusion(const std::vector<Point>& points, size_t drawn) {
  const Point* top = nullptr;
  std::set<const Candidate*> front, all;
  for (const Point& point : points) {
    if (point.on_front) front.insert(point.candidate);
    all.insert(point.candidate);
    if (!top || point.throughput->median > top->throughput->median) top = &point;
  }
  std::string text = StrCat(front.size(), " of ", Counted(all.size(), "configuration"),
                            front.size() == 1 ? " touches" : " touch",
                            " the Pareto front (dashed); the highest throughput, ",
                            FormatFigure("tokens/s", top->throughput->median), ", comes from ",
                            SettingsText(*top->candidate), top->level.is_open() ? " at " : " with ",
                            LevelText(top->level), ".");
  const auto open = [](const Point& point) { return point.level.is_open(); };
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
  std::vector<Point> points = PointsOf(results);
  if (points.empty())
    return Absent("frontier", "Throughput against latency", "no client request has finished yet");
  MarkFront(points);
  const auto telling = MostTelling(results, kChartCandidates);
  const std::set<const Candidate*> drawn(telling.begin(), telling.end());
  for (const Point& point : points)
    if (point.on_front || drawn.count(point.candidate)) chart.values.Append(RowOf(results, point));
  chart.conclusion = Conclusion(points, drawn.size());
  return chart;
}

}  // namespace pinion::harness
