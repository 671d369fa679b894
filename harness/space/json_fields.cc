#include "harness/space/json_fields.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>

namespace pinion::harness {
namespace {

constexpr size_t kMostTextBytes = 4096;  // PATH_MAX of Linux

Status CheckText(const std::string& text) {
  if (text.size() > kMostTextBytes)
    return Fail(ErrorCode::kUsage, StrCat(Excerpt(text), " is a text of ", text.size(),
                                          " bytes; give at most ", kMostTextBytes));
  if (text.find('\0') == std::string::npos) return {};
  return Fail(ErrorCode::kUsage,
              StrCat(Excerpt(text), " has a NUL, at which programs would cut it off: remove that"));
}

}  // namespace

// JSON is nested to 200 levels at most.
Status CheckTexts(const Json& value) {
  if (value.is_string()) return CheckText(value.string());
  if (value.is_array())
    for (const Json& item : value.array()) PINION_TRY(CheckTexts(item));
  if (value.is_object())
    for (const auto& [key, item] : value.object()) {
      PINION_TRY(CheckText(key));
      PINION_TRY(CheckTexts(item));
    }
  return {};
}

Status CheckNoneTwice(const Json& object, const std::string& where) {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : object.object())
    if (!seen.insert(key).second)
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' stands twice in ", where, ": keep one of them"));
  return {};
}

Status CheckKeys(const Json& object, const std::string& where,
                 const std::vector<std::string>& known) {
  if (!object.is_object())
    return Fail(ErrorCode::kUsage, StrCat(where, " must be an object, not ", object.type_name()));
  for (const auto& [key, value] : object.object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Fail(ErrorCode::kUsage,
                  StrCat("unknown key '", key, "' in ", where, "; known are ", Join(known, ", ")));
  return CheckNoneTwice(object, where);
}

Result<int> ToInt(const Json& value, const std::string& what) {
  if (!value.is_int())
    return Fail(ErrorCode::kUsage, StrCat(what, " must be an integer, not ", Excerpt(value)));
  if (value.integer() < INT32_MIN || value.integer() > INT32_MAX)
    return Fail(ErrorCode::kUsage, StrCat(what, " ", value.Dump(), " is out of range"));
  return static_cast<int>(value.integer());
}

Result<double> ToNumber(const Json& value, const std::string& what) {
  if (value.is_number()) return value.number();
  return Fail(ErrorCode::kUsage, StrCat(what, " must be a number, not ", Excerpt(value)));
}

Result<std::string> ToText(const Json& value, const std::string& what) {
  if (value.is_string()) return value.string();
  return Fail(ErrorCode::kUsage, StrCat(what, " must be a string, not ", Excerpt(value)));
}

Result<double> ToGib(const Json& value, const std::string& what) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  constexpr uint64_t kMostGib = uint64_t{1}
                                << 30;  // far above any memory, and its bytes fit 64 bits
  double gib = 0;
  if (value.is_string()) {
    PINION_ASSIGN(const uint64_t bytes, ParseBytes(value.string(), kGib, what));
    gib = static_cast<double>(bytes) / static_cast<double>(kGib);
  } else if (value.is_number()) {
    gib = value.number();
  }
  if (!(gib > 0))
    return Fail(
        ErrorCode::kUsage,
        StrCat(what, " must be GiB above 0 or text such as \"512MiB\", not ", Excerpt(value)));
  if (gib <= static_cast<double>(kMostGib)) return gib;
  return Fail(ErrorCode::kUsage,
              StrCat(what, " is ", value.Dump(), ", want at most ", kMostGib, " GiB"));
}

Result<double> ToSeconds(const Json& value, const std::string& what) {
  if (value.is_number()) return ParseDuration(value.Dump(), what);
  if (value.is_string()) return ParseDuration(value.string(), what);
  return Fail(ErrorCode::kUsage,
              StrCat(what, " must be seconds or text such as \"10m\", not ", Excerpt(value)));
}

}  // namespace pinion::harness
