// A comparison as text and as JSON.

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/compare/compare.h"
#include "harness/stats/metrics.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

using Kind = MetricDifference::Kind;

std::string Number(double value, const std::string& unit) {
  if (unit == "bytes") return FormatBytes(static_cast<uint64_t>(value));
  return unit == "s" ? Printf("%.4g ms", value * 1e3) : Printf("%.4g", value);
}

std::string Line(const MetricDifference& difference) {
  const MetricInfo* metric = FindMetric(difference.metric);
  const std::string unit = metric ? metric->unit : "";
  std::string name = difference.metric;
  if (difference.level.any()) name += StrCat(" at ", LevelKey(difference.level));
  std::string text = Left("  " + name, 32);
  text += Right(Number(difference.a, unit), 12);
  text += Right(Number(difference.b, unit), 12);
  text += Right(Change(difference.ratio.median), 10);
  const auto& interval = difference.ratio.interval;
  text += Right(interval ? StrCat(Change(interval->low), " to ", Change(interval->high)) : "-", 22);
  text += Right(Percent(difference.floor), 9) + Right(StrCat(difference.ratio.n), 8) + "  ";
  return text + (difference.kind == Kind::kWorse ? "WORSE" : Name(difference.kind)) + "\n";
}

}  // namespace

Json ToJson(const RunComparison& comparison) {
  Json list = Json::MakeArray();
  for (const MetricDifference& difference : comparison.differences) {
    const MetricInfo* metric = FindMetric(difference.metric);
    const auto& interval = difference.ratio.interval;
    Json ratio = Json::MakeObject();
    ratio.Set("median", difference.ratio.median);
    ratio.Set("low", interval ? Json(interval->low) : Json());
    ratio.Set("high", interval ? Json(interval->high) : Json());
    ratio.Set("n", static_cast<int64_t>(difference.ratio.n));
    Json one = Json::MakeObject();
    one.Set("candidate", difference.candidate);
    one.Set("metric", difference.metric);
    one.Set("unit", metric ? metric->unit : "");
    SetLevel(difference.level, one);
    one.Set("a", difference.a);
    one.Set("b", difference.b);
    one.Set("ratio", std::move(ratio));
    one.Set("floor", difference.floor);
    one.Set("kind", Name(difference.kind));
    list.Append(std::move(one));
  }
  return Json::Object{{"a", comparison.a},
                      {"b", comparison.b},
                      {"threshold", comparison.threshold},
                      {"worse", static_cast<int64_t>(comparison.Count(Kind::kWorse))},
                      {"better", static_cast<int64_t>(comparison.Count(Kind::kBetter))},
                      {"differences", std::move(list)},
                      {"notes", Json(comparison.notes)},
                      {"obstacles", Json(comparison.obstacles)}};
}

std::string Render(const RunComparison& comparison) {
  std::string text = StrCat("A  ", comparison.a, "  (", comparison.a_what, ")\nB  ", comparison.b,
                            "  (", comparison.b_what, ")\n");
  for (const std::string& note : comparison.notes) text += "note: " + note + "\n";
  std::string candidate;
  for (const MetricDifference& difference : comparison.differences) {
    if (difference.candidate != candidate) {
      candidate = difference.candidate;
      text += "\n" + Left(candidate, 32);
      for (const auto& [name, width] :
           {std::pair("A", 12), std::pair("B", 12), std::pair("B is", 10),
            std::pair("95 % interval", 22), std::pair("floor", 9), std::pair("rounds", 8)})
        text += Right(name, static_cast<size_t>(width));
      text += "\n";
    }
    text += Line(difference);
  }
  const size_t worse = comparison.Count(Kind::kWorse), better = comparison.Count(Kind::kBetter);
  text += StrCat("\n", worse, " worse, ", better, " better of ", comparison.differences.size(),
                 " (more than ", Percent(comparison.threshold),
                 " and the floor, beyond the interval; + is better)\n");
  return text;
}

}  // namespace pinion::harness
