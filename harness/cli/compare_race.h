#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/space/definition.h"

namespace pinion::harness {

// `pinion compare --build A --build B MODEL`, and `pinion compare A.json B.json`.
struct CompareRaceFlags {
  std::vector<std::string> builds;    // two files, or
  std::vector<std::string> profiles;  // two files
  std::string model;                  // of builds
  std::string budget = "10m", out;
  std::optional<std::string> objective;  // unset: that of the first profile if a race can measure
                                         // it, else throughput
  double threshold = 0.02;               // a fraction
  int rounds = kMaxRounds;               // at most, of the race; the confirmation's count, too
  bool json = false;
};

// Races two builds' defaults, or two profiles on this build, for the budget, and prints the
// verdict. True: B is worse. Errors: a side that cannot be run or fails under load, profiles of
// different models, too few rounds for a verdict, an interruption.
Result<bool> CompareRace(const CompareRaceFlags& flags);

}  // namespace pinion::harness
