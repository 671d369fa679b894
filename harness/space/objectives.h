#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace pinion::harness {

// LogScore in harness/sweep/score.h defines the quantity that each maximises.
enum class Objective { kThroughput, kLatency, kBalanced, kGoodput, kCores, kEnergy };
// "throughput", "latency", "balanced", "goodput", "cores", "energy"
const char* Name(Objective objective);
const std::vector<Objective>& AllObjectives();
// By its name; the error lists them.
Result<Objective> ParseObjective(const std::string& name);

// How candidates are chosen and dropped.
enum class Strategy {
  kRacing,      // all of them, dropped as soon as they cannot win
  kGrid,        // all of them in every round
  kRandom,      // a random choice of them, raced
  kCoordinate,  // one setting at a time, from the baseline and from random points, each step a race
};
const char* Name(Strategy strategy);  // "racing", "grid", "random", "coordinate"
Result<Strategy> ParseStrategy(const std::string& name);

}  // namespace pinion::harness
