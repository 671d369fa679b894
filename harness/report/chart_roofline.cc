// The machine's roofline as measured beside the trials, and where the trials' steps lie under it.

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/report/charts.h"
#include "harness/report/words.h"

namespace pinion::harness {
namespace {

double MedianOf(const Candidate& candidate, const std::string& metric) {
  const Series* series = candidate.Find(metric, 0);
  return series ? series->estimate.median : 0;
}

// Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009).
struct Roof {
  double bytes_per_s = 0, flops_per_s = 0;
  double At(double intensity) const { return std::min(intensity * bytes_per_s, flops_per_s); }
};

struct RooflinePoint {
  const Candidate* candidate;
  const char* phase;
  double bytes_per_s, flops_per_s;
  double intensity() const { return flops_per_s / bytes_per_s; }
};

bool InIntegers(const Candidate& candidate) {
  return MedianOf(candidate, "ceiling_int8_ops_per_s") > 0;
}

// Configurations that compute with the same instructions on as many threads share a roof.
std::string RoofName(const Candidate& candidate) {
  return StrCat(candidate.isa, InIntegers(candidate) ? " in int8, " : ", ",
                Counted(static_cast<size_t>(candidate.threads), "thread"));
}

// A disturbance can only lower a probe's rate, so the highest measurement is the best estimate.
std::map<std::string, Roof> RoofsOf(const Results& results) {
  std::map<std::string, Roof> roofs;
  for (const Candidate& candidate : results.candidates) {
    const double bytes = MedianOf(candidate, "ceiling_bytes_per_s"),
                 flops = std::max(MedianOf(candidate, "ceiling_flops_per_s"),
                                  MedianOf(candidate, "ceiling_int8_ops_per_s"));
    if (bytes <= 0 || flops <= 0) continue;
    Roof& roof = roofs[RoofName(candidate)];
    roof = {std::max(roof.bytes_per_s, bytes), std::max(roof.flops_per_s, flops)};
  }
  return roofs;
}

std::vector<RooflinePoint> RooflinePointsOf(const Results& results) {
  std::vector<RooflinePoint> points;
  for (const Candidate* candidate : MostTelling(results, kChartCandidates))
    for (const char* phase : {"prefill", "decode"}) {
      const double bytes = MedianOf(*candidate, StrCat(phase, "_bytes_per_s")),
                   flops = MedianOf(*candidate, StrCat(phase, "_flops_per_s"));
      if (bytes > 0 && flops > 0) points.push_back({candidate, phase, bytes, flops});
    }
  return points;
}

// The roof's three points: left of all drawn points, its corner, and right of them.
void AddRoof(const std::string& name, const Roof& roof, double from, double to, Json& values) {
  const double corner = roof.flops_per_s / roof.bytes_per_s;
  for (const double intensity : {from, corner, to})
    values.Append(Json::Object{{"kind", "roof"},
                               {"roof", name},
                               {"intensity", intensity},
                               {"flops_per_s", roof.At(intensity)}});
}

// If roofs end too close to each other for a line of text between them, one label over the
// highest names them all. `decades`: the chart's height.
void AddLabels(const std::map<std::string, Roof>& roofs, double to, double decades, Json& values) {
  constexpr double kLine = 14.0 / 300;  // a line of text, of the specification's height
  std::vector<std::pair<double, std::string>> ends;
  for (const auto& [name, roof] : roofs) ends.emplace_back(std::log10(roof.At(to)), name);
  std::sort(ends.begin(), ends.end());
  for (size_t i = 0; i < ends.size();) {
    std::vector<std::string> names;
    double top = ends[i].first;
    for (; i < ends.size() && ends[i].first - top < kLine * decades; ++i) {
      top = ends[i].first;
      names.push_back(ends[i].second);
    }
    values.Append(Json::Object{{"kind", "label"},
                               {"roof", Join(names, " · ")},
                               {"intensity", to},
                               {"flops_per_s", std::pow(10, top)}});
  }
}

std::string Conclusion(const std::vector<RooflinePoint>& points,
                       const std::map<std::string, Roof>& roofs, const Candidate& candidate) {
  std::vector<std::string> parts;
  for (const RooflinePoint& point : points) {
    const auto roof = roofs.find(RoofName(*point.candidate));
    if (point.candidate != &candidate || roof == roofs.end()) continue;
    const bool by_memory = point.intensity() * roof->second.bytes_per_s < roof->second.flops_per_s;
    const double share = point.flops_per_s / roof->second.At(point.intensity());
    parts.push_back(StrCat(point.phase, " reaches ", std::lround(100 * share), " % of the ",
                           by_memory ? "memory" : "arithmetic", " limit (",
                           by_memory ? FormatFigure("bytes/s", point.bytes_per_s)
                                     : FormatFigure("FLOP/s", point.flops_per_s),
                           ")"));
  }
  return StrCat(SettingsText(candidate), ": ", Join(parts, ", "),
                ". Slope: memory limit; flat: arithmetic limit.");
}

std::string WhyAbsent(const Results& results) {
  for (const Candidate& candidate : results.candidates)
    if (!candidate.no_ceilings_because.empty())
      return "the ceilings were not measured: " + candidate.no_ceilings_because;
  const auto& engines = results.definition.engines;
  if (std::none_of(engines.begin(), engines.end(),
                   [](const EngineChoice& engine) { return engine.is_pinion(); }))
    return "only Pinion's own engine counts bytes and operations";
  return "no trial has measured the ceilings beside its load";
}

}  // namespace

Chart RooflineChart(const Results& results) {
  Chart chart{"roofline", "Roofline", "", Json::MakeArray(), ""};
  const auto roofs = RoofsOf(results);
  const std::vector<RooflinePoint> points = RooflinePointsOf(results);
  if (roofs.empty() || points.empty()) return Absent(chart, WhyAbsent(results));
  double from = INFINITY, to = 0;
  for (const auto& [name, roof] : roofs) {
    from = std::min(from, roof.flops_per_s / roof.bytes_per_s / 2);
    to = std::max(to, roof.flops_per_s / roof.bytes_per_s * 4);
  }
  for (const RooflinePoint& point : points) {
    from = std::min(from, point.intensity() / 2);
    to = std::max(to, point.intensity() * 2);
  }
  double lowest = INFINITY, highest = 0;
  for (const auto& [name, roof] : roofs) {
    AddRoof(name, roof, from, to, chart.values);
    lowest = std::min(lowest, roof.At(from));
    highest = std::max(highest, roof.At(to));
  }
  for (const RooflinePoint& point : points) lowest = std::min(lowest, point.flops_per_s);
  AddLabels(roofs, to, std::log10(highest / lowest), chart.values);
  for (const RooflinePoint& point : points)
    chart.values.Append(Json::Object{{"kind", "point"},
                                     {"configuration", SettingsText(*point.candidate)},
                                     {"role", RoleOf(results, *point.candidate)},
                                     {"phase", point.phase},
                                     {"roof", RoofName(*point.candidate)},
                                     {"intensity", point.intensity()},
                                     {"flops_per_s", point.flops_per_s},
                                     {"bytes_per_s", point.bytes_per_s}});
  const Candidate* winner = WinnerOf(results);
  if (!winner) winner = results.Find(0);
  const bool drawn =
      winner && std::any_of(points.begin(), points.end(),
                            [&](const RooflinePoint& point) { return point.candidate == winner; });
  chart.conclusion = Conclusion(points, roofs, drawn ? *winner : *points.front().candidate);
  return chart;
}

}  // namespace pinion::harness
