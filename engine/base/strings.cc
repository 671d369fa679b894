#include "engine/base/strings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/base/words.h"

namespace pinion {
namespace {

constexpr int kMaxCpu = 1 << 16;  // far above any kernel's NR_CPUS: a larger number is a typo

Result<std::pair<double, std::string>> NumberAndUnit(std::string_view text, std::string_view what,
                                                     std::string_view examples) {
  const std::string_view trimmed = Trim(text);
  double number = 0;
  const char* end = trimmed.data() + trimmed.size();
  const auto [stop, failure] = std::from_chars(trimmed.data(), end, number);
  if (failure != std::errc() || !std::isfinite(number) || number < 0)
    return Fail(ErrorCode::kUsage,
                StrCat(what, " '", text, "' does not begin with a number >= 0; write ", examples));
  std::string unit(Trim(std::string_view(stop, static_cast<size_t>(end - stop))));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::pair(number, unit);
}

// "3", "0-3" or "0-8:2", appended to cpus.
Status AppendRange(std::string_view part, std::vector<int>& cpus) {
  const auto bad = [&](std::string_view why) {
    return Fail(ErrorCode::kUsage,
                StrCat("cpu list item '", part, "' ", why, "; write 3, 0-3 or 0-8:2"));
  };
  const auto colon = part.find(':');
  const auto dash = part.find('-');
  if (colon != std::string_view::npos && dash == std::string_view::npos)
    return bad("has a step without a range");
  const auto first = ParseInt(part.substr(0, dash), "cpu");  // npos: all of it
  if (!first || *first < 0 || *first > kMaxCpu) return bad("is not a cpu number");
  int64_t last = *first, step = 1;
  if (dash != std::string_view::npos) {
    const size_t length = (colon == std::string_view::npos ? part.size() : colon) - dash - 1;
    const auto parsed = ParseInt(part.substr(dash + 1, length), "cpu");
    if (!parsed || *parsed > kMaxCpu) return bad("does not end in a cpu number");
    if (*parsed < *first) return bad("runs backwards");
    last = *parsed;
  }
  if (colon != std::string_view::npos) {
    const auto parsed = ParseInt(part.substr(colon + 1), "step");
    if (!parsed || *parsed < 1) return bad("has a step below 1");
    step = *parsed;
  }
  for (int64_t cpu = *first; cpu <= last; cpu += step) cpus.push_back(static_cast<int>(cpu));
  return {};
}

}  // namespace

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    parts.emplace_back(text.substr(begin, end - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

std::string_view Trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Result<int64_t> ParseInt(std::string_view text, std::string_view what) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || text.empty())
    return Fail(ErrorCode::kUsage, StrCat(what, " '", text, "' is not a whole number"));
  return value;
}

Result<double> ParseDouble(std::string_view text, std::string_view what) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || text.empty() || !std::isfinite(value))
    return Fail(ErrorCode::kUsage, StrCat(what, " '", text, "' is not a number"));
  return value;
}

Result<uint64_t> ParseBytes(std::string_view text, uint64_t unit_bytes, std::string_view what) {
  PINION_ASSIGN(const auto parsed, NumberAndUnit(text, what, "4GiB or 512MiB"));
  auto [number, unit] = parsed;
  double scale = static_cast<double>(unit_bytes);
  if (!unit.empty()) {
    const auto power = std::string_view("bkmgt").find(unit[0]);
    const std::string rest = unit.substr(1);
    const bool known =
        power != std::string_view::npos && (rest.empty() || rest == "b" || rest == "ib");
    if (!known || (power == 0 && !rest.empty()))
      return Fail(ErrorCode::kUsage, StrCat(what, " '", text, "' has an unknown unit '", unit,
                                            "'; use B, KiB, MiB, GiB or TiB"));
    scale = std::pow(1024.0, static_cast<double>(power));
  }
  const double bytes = number * scale;
  if (bytes >= 0x1p62) return Fail(ErrorCode::kUsage, StrCat(what, " '", text, "' is too large"));
  return static_cast<uint64_t>(bytes);
}

Result<double> ParseDuration(std::string_view text, std::string_view what) {
  PINION_ASSIGN(const auto parsed, NumberAndUnit(text, what, "500ms, 20s, 10m or 2h"));
  const auto& [number, unit] = parsed;
  double scale = 1;
  if (unit == "ms") {
    scale = 1e-3;
  } else if (unit == "m" || unit == "min") {
    scale = 60;
  } else if (unit == "h") {
    scale = 3600;
  } else if (!unit.empty() && unit != "s") {
    return Fail(ErrorCode::kUsage,
                StrCat(what, " '", text, "' has an unknown unit '", unit, "'; use ms, s, m or h"));
  }
  // A year, which clocks in nanoseconds can still add up.
  if (number * scale > 366 * 24 * 3600.0)
    return Fail(ErrorCode::kUsage, StrCat(what, " '", text, "' is longer than a year"));
  return number * scale;
}

Result<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string& part : Split(text, ',')) PINION_TRY(AppendRange(Trim(part), cpus));
  return cpus;
}

std::string FormatCpuList(const std::vector<int>& cpus) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < cpus.size();) {
    // The longest run of equal steps upwards from here; two CPUs two apart are shorter as 0,2.
    const int step = begin + 1 < cpus.size() ? cpus[begin + 1] - cpus[begin] : 0;
    size_t end = begin;
    while (step > 0 && end + 1 < cpus.size() && cpus[end + 1] - cpus[end] == step) ++end;
    if (step != 1 && end < begin + 2) end = begin;
    std::string part = StrCat(cpus[begin]);
    if (end > begin) part += StrCat('-', cpus[end]);
    if (end > begin && step > 1) part += StrCat(':', step);
    parts.push_back(std::move(part));
    begin = end + 1;
  }
  return Join(parts, ",");
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f" : "%.1f", value);
  return StrCat(value < 100 ? text : Grouped(text), " ", kUnits[unit]);
}

}  // namespace pinion
