#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/runtime_choice.h"
#include "engine/run/options.h"
#include "harness/space/definition.h"

namespace pinion::harness {

// Every list of the space in turn, each value as one setting; empty lists are left out.
std::vector<std::vector<Setting>> Axes(const Space& space);

// Everything that candidates may vary: the engine's options, its process's runtime and
// the number of replicas.
struct Configuration {
  EngineOptions options;
  RuntimeChoice runtime = {};
  int replicas = 1;
};

// Applies one setting to the configuration. Errors (kUsage) name an unknown key or a value of a
// wrong kind.
Status Apply(const Setting& setting, Configuration& configuration);

// {"isa":"avx2","max_num_seqs":8} -> settings, in the order of the space.
Result<std::vector<Setting>> SettingsOf(const Json& point);

// The settings that differ between two configurations, in the order of the space.
std::vector<Setting> Difference(const Configuration& base, const Configuration& configuration);

// The runtime that these settings of a candidate name; other settings are ignored.
RuntimeChoice RuntimeOf(const std::vector<Setting>& settings);

// The number of replicas in these settings; 1 if they have none.
int ReplicasOf(const std::vector<Setting>& settings);

// "isa=avx2 max_num_seqs=8"; "default" without settings.
std::string Label(const std::vector<Setting>& settings);

}  // namespace pinion::harness
