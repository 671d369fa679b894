#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/result.h"

namespace pinion::harness {

// What the processor packages have used up to now: RAPL's counters by the kernel's powercap, of
// everything that runs on them. `root` stands for "/".
struct EnergyReading {
  struct Counter {
    uint64_t microjoules = 0, range = 0;  // starts anew at 0 when it reaches its range
  };
  std::map<std::string, Counter> packages;  // by their powercap folder
  std::string unavailable;                  // why there is none: one phrase; empty: there is

  static EnergyReading Now(const std::string& root = "/");
};

// Joules of all packages between two readings, one wrap of each allowed for. Error (kUnsupported):
// not available, because ...
Result<double> JoulesBetween(const EnergyReading& before, const EnergyReading& after);

}  // namespace pinion::harness
