#include "harness/results/figures.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// Three significant digits, never an exponent: 0.0123, 1.23, 12.3, 123, 1230, 12,300.
std::string Significant(double value) {
  if (value == 0 || !std::isfinite(value)) return Printf("%.0f", value);
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  if (before > 3) {
    const std::string digits = Printf("%.0f", value);
    return std::abs(value) < 9999.5 ? digits : Grouped(digits);  // four stay together
  }
  return Printf(StrCat("%.", std::clamp(3 - before, 0, 6), "f").c_str(), value);
}

// A ratio in percent, rounded to the precision that the interval's width supports.
std::string Points(double ratio, const Estimate& of, bool sign) {
  const bool coarse = of.interval && of.interval->high - of.interval->low >= 0.1;
  const char* formats[2][2] = {{"%.1f", "%.0f"}, {"%+.1f", "%+.0f"}};
  return Printf(formats[sign][coarse], (ratio - 1) * 100);
}

// Large percentages are hard to read: "+1240.0 %".
bool IsFactor(double ratio) { return ratio >= 10; }
std::string Factor(double ratio) { return Significant(ratio) + " times"; }

}  // namespace

std::string FormatFigure(const std::string& unit, double value) {
  if (unit == "bytes") return FormatBytes(static_cast<uint64_t>(std::max(0.0, value)));
  if (unit == "share") return Percent(value);
  if (unit == "load" || unit == "price") return Significant(value);
  if (unit == "bytes/s") return Significant(value * 1e-9) + " GB/s";
  if (unit == "Hz") return Significant(value * 1e-9) + " GHz";
  if (unit == "FLOP/s") return Significant(value * 1e-9) + " GFLOP/s";
  if (unit == "s" && value < 1e-3) return Significant(value * 1e6) + " µs";
  if (unit == "s" && value < 1) return Significant(value * 1e3) + " ms";
  return StrCat(Significant(value), " ", unit);
}

std::string FormatRange(const std::string& unit, double low, double high) {
  const std::string from = FormatFigure(unit, low), to = FormatFigure(unit, high);
  const std::string suffix = to.substr(std::min(to.find(' '), to.size()));  // some have no unit
  const bool same_unit = from.ends_with(suffix);
  return StrCat(same_unit ? from.substr(0, from.size() - suffix.size()) : from, " to ", to);
}

std::string FormatChange(double ratio) { return FormatChange(Estimate{1, ratio, 0, std::nullopt}); }

std::string FormatChange(const Estimate& ratio) {
  return IsFactor(ratio.median) ? Factor(ratio.median) : Points(ratio.median, ratio, true) + " %";
}

std::string FormatChangeInterval(const Estimate& ratio) {
  if (!ratio.interval) return StrCat("no interval (n = ", ratio.n, ")");
  const auto [low, high] = std::pair(ratio.interval->low, ratio.interval->high);
  const auto text = [&](double end) {
    return IsFactor(end) ? Factor(end) : Points(end, ratio, true);
  };
  if (IsFactor(high)) return StrCat(text(low), IsFactor(low) ? "" : " %", " to ", text(high));
  return StrCat(text(low), " to ", text(high), " %");
}

std::string FormatGain(const Estimate& ratio) {
  std::string text = Points(ratio.median, ratio, false) + " %";
  if (const auto& range = ratio.interval)
    text += StrCat(" [", Points(range->low, ratio, false), ", ", Points(range->high, ratio, false),
                   "]");
  return text;
}

std::string FormatLoss(const Estimate& ratio) {
  const auto loss = [&](double of) { return Points(2 - of, ratio, false); };
  std::string text = loss(ratio.median) + " % worse";
  if (const auto& range = ratio.interval)
    text += StrCat(" (", loss(range->high), " to ", loss(range->low), " %)");
  return text;
}

std::string Listed(const std::vector<std::string>& items, const char* last) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i)
    text += StrCat(i == 0 ? "" : i + 1 == items.size() ? StrCat(" ", last, " ") : ", ", items[i]);
  return text;
}

std::string FormatSeconds(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 120) return StrCat(whole, " s");
  if (whole < 7200) return StrCat(whole / 60, " min ", whole % 60, " s");
  return StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string FormatShareOrFactor(double fraction) {
  // Above 100 % a factor is easier to grasp than a percentage.
  return fraction < 1 ? Percent(fraction) : "a factor of " + Significant(1 + fraction);
}

}  // namespace pinion::harness
