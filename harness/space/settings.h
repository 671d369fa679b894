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

// All that a candidate may differ in: how the engine runs, what its process is started with, and
// how many such processes there are.
struct Configuration {
  EngineOptions options;
  RuntimeChoice runtime = {};
  int replicas = 1;
};

// Puts one setting into the configuration. Errors (kUsage) name an unknown key or a value of a
// wrong kind.
Status Apply(const Setting& setting, Configuration& configuration);

// {"isa":"avx2","max_num_seqs":8} -> settings, in the order of the space.
Result<std::vector<Setting>> SettingsOf(const Json& point);

// What differs between two configurations, in the order of the space.
std::vector<Setting> Difference(const Configuration& base, const Configuration& configuration);

// The runtime that these settings name, as a candidate's row keeps them; others are left alone.
RuntimeChoice RuntimeOf(const std::vector<Setting>& settings);

// The replicas that these settings name; 1 where they do not.
int ReplicasOf(const std::vector<Setting>& settings);

// "isa=avx2 max_num_seqs=8"; "default" where there is none.
std::string Label(const std::vector<Setting>& settings);

}  // namespace pinion::harness
