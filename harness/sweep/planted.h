#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// Configurations with the speed that they are to have, relative to the default. The default is the
// one called "default", else the first with speed 1; if there is neither, one of speed 1 that is
// not listed. It comes first here.
struct Planted {
  std::vector<std::pair<std::string, double>> configurations;
  bool default_is_listed = true;
  std::map<std::string, double> noise;  // times the recorded one, for those that have more
  size_t objectives = 1;  // asked for: throughput, latency (of the same speed), balanced
  // Shares of trials, at random: those that fail, and those that others disturb, which are marked
  // as suspect and run at between half and all of their speed.
  double failures = 0, disturbed = 0;
};
// {"configurations":{"name":relative speed,...},"noise":{"name":factor,...},"objectives":1,
// "failures":share,"disturbed":share}; only the configurations are required. Errors (kUsage) name
// the key.
Result<Planted> ParsePlanted(const Json& object);

// The same on top of a recorded sweep, whose candidates are `names`, the default first: a speed is
// relative to the recorded one, and 1 unless it is given.
Result<Planted> ParsePlantedOn(const std::vector<std::string>& names, const Json& object);

}  // namespace pinion::harness
