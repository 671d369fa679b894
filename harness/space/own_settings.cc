#include "harness/space/own_settings.h"

#include "engine/base/json_text.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr std::string_view kVariable = "env.";

}  // namespace

bool IsOwnKey(std::string_view key) {
  return (key.starts_with(kVariable) && key.size() > kVariable.size()) ||
         (key.starts_with('-') && key.size() > 1);
}

Result<std::optional<Setting>> ReadOwnSetting(const std::string& key, const Json& value) {
  const bool is_flag = key.starts_with('-');
  if (!is_flag && key.find('=') != std::string::npos)
    return Fail(ErrorCode::kUsage,
                StrCat("'", key, "' names no variable, because of its '=': write ", "\"",
                       key.substr(0, key.find('=')), "\" and its values"));
  if (value.is_null() || (value.is_bool() && !value.boolean())) return std::optional<Setting>();
  if (value.is_bool() && is_flag) return std::optional(Setting{key, ""});
  if (value.is_string() && (!is_flag || !value.string().empty()))
    return std::optional(Setting{key, value.string()});
  if (value.is_number()) return std::optional(Setting{key, value.Dump()});
  return Fail(ErrorCode::kUsage,
              StrCat("a value of '", key, "' must be text, a number, ",
                     is_flag ? "true (the flag alone), false" : "", is_flag ? " or " : "or ",
                     "null (leave it out), not ", Excerpt(value)));
}

EngineChoice WithOwnSettings(EngineChoice engine, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    if (!IsOwnKey(setting.key)) continue;
    if (setting.key.starts_with(kVariable)) {
      engine.environment.emplace_back(setting.key.substr(kVariable.size()), setting.value);
      continue;
    }
    engine.arguments.push_back(setting.key);
    if (!setting.value.empty()) engine.arguments.push_back(setting.value);
  }
  return engine;
}

}  // namespace pinion::harness
