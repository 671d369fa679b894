#include "harness/space/settings.h"

#include "engine/base/strings.h"
#include "harness/space/own_settings.h"

namespace pinion::harness {
namespace {

Result<const SettingRow*> RowOf(const std::string& key) {
  const SettingRow* row = FindSetting(key);
  if (row && row->varies) return row;
  return Fail(ErrorCode::kUsage, StrCat("unknown setting '", key, "'; known are ", SettingKeys()));
}

}  // namespace

Status Apply(const Setting& setting, Configuration& configuration) {
  if (IsOwnKey(setting.key)) return {};
  PINION_ASSIGN(const SettingRow* row, RowOf(setting.key));
  PINION_ASSIGN(const Json value, ParseSetting(*row, setting.value, setting.key));
  row->set(value, configuration);
  return {};
}

Result<std::vector<Setting>> SettingsOf(const Json& point) {
  Configuration changed;
  std::vector<Setting> own;
  for (const auto& [key, value] : point.object()) {
    if (key == "engine") continue;
    if (IsOwnKey(key)) {
      PINION_ASSIGN(auto one, ReadOwnSetting(key, value));
      if (one) own.push_back(std::move(*one));
      continue;
    }
    PINION_ASSIGN(const SettingRow* row, RowOf(key));
    PINION_ASSIGN(const Json read, ReadSetting(*row, value, StrCat("setting '", key, "'")));
    row->set(read, changed);
  }
  std::vector<Setting> settings;
  for (const SettingRow& row : SettingRows())
    if (point.Find(row.key)) settings.push_back({row.key, SettingText(row.get(changed))});
  settings.insert(settings.end(), own.begin(), own.end());
  return settings;
}

std::vector<Setting> Difference(const Configuration& base, const Configuration& configuration) {
  std::vector<Setting> settings;
  for (const SettingRow& row : SettingRows())
    if (const Json value = row.get(configuration); row.get(base) != value)
      settings.push_back({row.key, SettingText(value)});
  return settings;
}

Configuration ConfigurationOf(const std::vector<Setting>& settings) {
  Configuration configuration;
  for (const Setting& setting : settings) (void)Apply(setting, configuration);
  return configuration;
}

std::string Label(const std::vector<Setting>& settings) {
  if (settings.empty()) return "default";
  std::vector<std::string> parts;
  for (const auto& [key, value] : settings)
    parts.push_back(value.empty() && IsOwnKey(key) ? key : StrCat(key, "=", value));
  return Join(parts, " ");
}

}  // namespace pinion::harness
