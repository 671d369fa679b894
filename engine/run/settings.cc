#include "engine/run/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr uint64_t kGibBytes = uint64_t{1} << 30;

// The shortest decimal that reads back as the same number.
std::string Shortest(double value) {
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

tl::unexpected<Error> Mistyped(const std::string& what, const char* want, const Json& value) {
  return Fail(ErrorCode::kUsage, StrCat(what, " must be ", want, ", not ", Excerpt(value)));
}

Result<Json> ReadGib(const Json& value, const std::string& what) {
  if (!value.is_number() && !value.is_string())
    return Mistyped(what, "GiB as a number or a text such as \"512MiB\"", value);
  const std::string text = value.is_string() ? value.string() : value.Dump();
  PINION_ASSIGN(const uint64_t bytes, ParseBytes(text, kGibBytes, what));
  return Json(GibOf(bytes));
}

Result<Json> ParseSeed(const std::string& text, const std::string& what) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty())
    return Json(static_cast<int64_t>(seed));
  return Fail(ErrorCode::kUsage,
              StrCat(what, " '", text, "' is not a whole number from 0 to 18446744073709551615"));
}

Result<Json> ParseSwitch(const std::string& text, const std::string& what) {
  if (text == "0" || text == "1") return Json(text == "1");
  return Fail(ErrorCode::kUsage, StrCat(what, " is '", text, "', want 0 or 1"));
}

// "auto, int8 or bf16"
std::string Alternatives(const std::vector<std::string>& names) {
  if (names.size() < 2) return Join(names, "");
  return Join({names.begin(), names.end() - 1}, ", ") + " or " + names.back();
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string RangeText(const SettingRow& row) {
  const bool open = row.most == std::numeric_limits<int>::max();
  const std::string range =
      open ? StrCat(row.least, " or more") : StrCat(row.least, " to ", row.most);
  return row.multiple == 1 ? range : StrCat("a multiple of ", row.multiple, ", ", range);
}

}  // namespace

std::string SettingRow::name() const {
  const std::string_view first = std::string_view(flag).substr(0, std::string_view(flag).find(','));
  return first.empty() ? key : std::string(first);
}

bool SettingRow::is_of_engine() const { return *flag != '\0' && !is_of_server; }

const SettingRow* FindSetting(std::string_view key) {
  const auto& rows = SettingRows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const SettingRow& one) { return one.key == key; });
  return row == rows.end() ? nullptr : &*row;
}

std::string SettingKeys() {
  std::vector<std::string> keys;
  for (const SettingRow& row : SettingRows()) keys.push_back(row.key);
  return Join(keys, ", ");
}

Result<Json> ReadSetting(const SettingRow& row, const Json& value, const std::string& what) {
  if (value.is_null() && row.can_be_unset) return value;
  switch (row.kind) {
    case SettingKind::kText:
      if (!value.is_string()) return Mistyped(what, "text", value);
      return value;
    case SettingKind::kInteger:
    case SettingKind::kSeed:
      if (!value.is_int()) return Mistyped(what, "an integer", value);
      if (row.kind == SettingKind::kInteger &&
          (value.integer() < -INT32_MAX || value.integer() > INT32_MAX))
        return Mistyped(what, "an integer from -2147483647 to 2147483647", value);
      return value;
    case SettingKind::kGib:
      return ReadGib(value, what);
    case SettingKind::kSwitch:
      if (!value.is_bool()) return Mistyped(what, "true or false", value);
      return value;
  }
  return value;
}

double GibOf(uint64_t bytes) {
  const double exact = static_cast<double>(bytes) / static_cast<double>(kGibBytes);
  for (int digits = 1; digits < 17; ++digits) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*g", digits, exact);
    const double shown = std::strtod(text, nullptr);
    if (static_cast<uint64_t>(shown * static_cast<double>(kGibBytes)) == bytes) return shown;
  }
  return exact;
}

Result<Json> ParseSetting(const SettingRow& row, const std::string& text, const std::string& what) {
  switch (row.kind) {
    case SettingKind::kText:
      return Json(text);
    case SettingKind::kInteger: {
      PINION_ASSIGN(const int64_t number, ParseInt(text, what));
      return ReadSetting(row, number, what);
    }
    case SettingKind::kSeed:
      return ParseSeed(text, what);
    case SettingKind::kGib:
      return ReadGib(text, what);
    case SettingKind::kSwitch:
      return ParseSwitch(text, what);
  }
  return Json(text);
}

std::string SettingText(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.string();
  if (value.is_bool()) return value.boolean() ? "1" : "0";
  return value.is_int() ? StrCat(value.integer()) : Shortest(value.number());
}

Status CheckSetting(const SettingRow& row, const Json& value, const std::string& what) {
  if (value.is_null()) return {};
  if (row.kind == SettingKind::kGib && value.number() <= 0)
    return Fail(ErrorCode::kUsage,
                StrCat(what, " is 0; leave it out for the default: ", row.usual));
  if (row.kind == SettingKind::kText && !row.names.empty() &&
      !Contains(row.names, value.string()) && !Contains(row.aliases, value.string()))
    return Fail(ErrorCode::kUsage,
                StrCat(what, " '", value.string(), "' is unknown; use ", Alternatives(row.names)));
  if (row.kind != SettingKind::kInteger) return {};
  const int64_t number = value.integer();
  if (number >= row.least && number <= row.most && number % row.multiple == 0) return {};
  return Fail(ErrorCode::kUsage, StrCat(what, " is ", number, ", want ", RangeText(row)));
}

std::optional<std::string> CounterpartValue(const Counterpart& counterpart, const Json& value) {
  if (counterpart.name.empty()) return std::nullopt;
  const std::string text = SettingText(value);
  if (counterpart.values.empty()) return text;
  for (const auto& [ours, theirs] : counterpart.values)
    if (ours == text) return theirs;
  return std::nullopt;
}

std::string SettingHelp(const SettingRow& row) {
  const std::string names = row.names.empty() ? "" : Alternatives(row.names) + ": ";
  const std::string environment = *row.environment ? StrCat(" [", row.environment, "]") : "";
  return StrCat(names, row.help, " (default: ", row.usual, ")", environment);
}

}  // namespace pinion
