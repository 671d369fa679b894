#include "harness/artifacts/expected.h"

#include <cmath>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/stats/load_level.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

std::string Number(double value, const std::string& unit) {
  if (unit == "bytes" && value >= 0 && value < 1e18)
    return FormatBytes(static_cast<uint64_t>(value));
  return Printf("%.4g", value);
}

std::string Figure(const std::string& number, const std::string& unit) {
  return unit.empty() || unit == "bytes" ? number : StrCat(number, " ", unit);
}

std::string IntervalText(const Json* interval, const std::string& unit) {
  if (!interval || !interval->is_object()) return "";
  const auto low = Require<double>(*interval, "low"), high = Require<double>(*interval, "high");
  if (!low || !high) return "";
  return StrCat(Number(*low, unit), " to ", Figure(Number(*high, unit), unit));
}

}  // namespace

std::vector<Expected> ExpectedOf(const Profile& profile) {
  std::vector<Expected> values;
  for (const Json& one : ItemsOf(&profile.expected)) {
    const auto median = Require<double>(one, "median");
    if (!median || !std::isfinite(*median)) continue;
    Expected value;
    value.metric = TextAt(one, "metric");
    value.unit = TextAt(one, "unit");
    const LoadLevel level = LevelOf(one).value_or(LoadLevel());
    value.level = level.any() ? LevelText(level) : "the batch";
    value.median = *median;
    value.figure = Figure(Number(*median, value.unit), value.unit);
    value.interval = IntervalText(one.Find("interval"), value.unit);
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace pinion::harness
