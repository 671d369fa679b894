#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/space/definition.h"

namespace pinion::harness {

// Every list of the space in turn, each value as one setting; empty lists are left out.
std::vector<std::vector<Setting>> Axes(const Space& space);

// Puts one setting into the options. Errors (kUsage) name an unknown key or a value of a wrong
// kind.
Status Apply(const Setting& setting, EngineOptions& options);

// {"isa":"avx2","max_num_seqs":8} -> settings, in the order of the space.
Result<std::vector<Setting>> SettingsOf(const Json& point);

// What differs between two configurations, in the order of the space.
std::vector<Setting> Difference(const EngineOptions& base, const EngineOptions& options);

// "isa=avx2 max_num_seqs=8"; "default" where there is none.
std::string Label(const std::vector<Setting>& settings);

}  // namespace pinion::harness
