#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/settings.h"

namespace pinion::harness {

// One setting of a candidate: its key and its value as a user would type it.
struct Setting {
  std::string key, value;
  bool operator==(const Setting&) const = default;
};

// Applies one setting to the configuration; an engine's own one (own_settings.h) is not a part of
// it. Errors (kUsage) name an unknown key or a value of a wrong kind.
Status Apply(const Setting& setting, Configuration& configuration);

// {"isa":"avx2","max_num_seqs":8} -> settings, in the order of the registry, engines' own ones
// behind; "engine" is none.
Result<std::vector<Setting>> SettingsOf(const Json& point);

// The settings that differ between two configurations, in the order of the registry.
std::vector<Setting> Difference(const Configuration& base, const Configuration& configuration);

// The defaults with these settings; those that cannot be applied, and engines' own, are ignored.
Configuration ConfigurationOf(const std::vector<Setting>& settings);

// "isa=avx2 max_num_seqs=8", "-fa=on --enforce-eager"; "default" without settings.
std::string Label(const std::vector<Setting>& settings);

}  // namespace pinion::harness
