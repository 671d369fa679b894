#include "engine/checkpoint/config_json.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

// The end of the string that begins at `at`.
size_t AfterString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return at + 1;
}

std::string WithoutNonFinite(std::string_view text) {
  std::string json;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"') end = std::min(AfterString(text, at), text.size());
    std::string part(text.substr(at, end - at));
    for (const std::string_view name : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(at, name.size()) != name) continue;
      end = at + name.size();
      part = StrCat(R"({"__float__": ")", name, R"("})");
      break;
    }
    json += part;
    at = end;
  }
  return json;
}

}  // namespace

Result<Json> ParseConfigFile(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadFile(path, kMaxSettingsBytes));
  auto parsed = Json::Parse(text);  // positions in errors are those of the file
  if (!parsed) {
    auto tolerant = Json::Parse(WithoutNonFinite(text));
    if (tolerant) return tolerant;
    return Unexpected(std::move(parsed).error().In(path));
  }
  return parsed;
}

}  // namespace pinion
