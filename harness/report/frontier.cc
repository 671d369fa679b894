#include "harness/report/frontier.h"

#include <cmath>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// The logs of a metric by round, negative if less of it is better. Samples of one round are its
// repetitions: those that nothing disturbed count, or all if there are none.
ByRound LogsOf(const Series& series, double sign) {
  std::map<int, std::pair<double, int>> sums[2];  // by round: disturbed ones apart
  for (const Sample& sample : series.samples) {
    if (sample.value <= 0) continue;
    auto& [sum, n] =
        sums[sample.suspect ? 1 : 0][sample.confirmation ? -sample.round : sample.round];
    sum += sign * std::log(sample.value);
    ++n;
  }
  ByRound logs;
  for (const auto& of : sums)
    for (const auto& [round, sum] : of) logs.try_emplace(round, sum.first / sum.second);
  return logs;
}

std::string LevelsText(const std::vector<FrontPoint>& points, const Candidate& candidate,
                       Front front) {
  std::vector<std::string> levels;
  for (const FrontPoint& point : points)
    if (point.candidate == &candidate && point.front == front)
      levels.push_back((point.level.is_open() ? "at " : "with ") + LevelText(point.level));
  return Join(levels, " and ");
}

Json PlaceJson(const FrontPoint& point) {
  Json json = Json::Object{{"candidate", point.candidate->id}, {"label", point.candidate->label}};
  SetLevel(point.level, json);
  return json;
}

}  // namespace

std::vector<FrontPoint> FrontOf(const Results& results) {
  const std::vector<LoadLevel> levels = results.definition.workload.levels();
  std::vector<FrontPoint> points;
  std::vector<ParetoPoint> logs;
  for (const Candidate& candidate : results.candidates)
    for (size_t load = 0; load < levels.size(); ++load) {
      const Series* latency = candidate.Find("e2el_s", levels[load]);
      const Series* throughput = candidate.Find("output_tokens_per_s", levels[load]);
      if (!latency || !throughput) continue;
      points.push_back({&candidate, levels[load], latency, throughput});
      logs.push_back({load, LogsOf(*latency, -1), LogsOf(*throughput, 1)});
    }
  const std::vector<FrontPlace> places = ParetoFront(logs);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].front = places[i].front;
    if (places[i].beaten_by) points[i].beaten_by = &points[*places[i].beaten_by];
  }
  return points;
}

std::string FrontText(const std::vector<FrontPoint>& points, const Candidate& candidate) {
  const std::string on = LevelsText(points, candidate, Front::kOn);
  const std::string possible = LevelsText(points, candidate, Front::kPossible);
  if (on.empty()) return possible.empty() ? "" : "possibly on the Pareto front " + possible;
  return StrCat("on the Pareto front ", on, possible.empty() ? "" : ", possibly " + possible);
}

Json FrontJson(const std::vector<FrontPoint>& points) {
  Json list = Json::MakeArray();
  for (const FrontPoint& point : points) {
    Json json = PlaceJson(point);
    json.Set("front", Name(point.front));
    json.Set("beaten_by", point.beaten_by ? PlaceJson(*point.beaten_by) : Json());
    list.Append(std::move(json));
  }
  return list;
}

}  // namespace pinion::harness
