#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/base/result.h"

namespace pinion::harness {

// The energy that the processor packages have used so far: RAPL's counters in the kernel's
// powercap, of everything that runs on them. `root` stands for "/".
struct EnergyReading {
  struct Counter {
    uint64_t microjoules = 0, range = 0;  // wraps to 0 at `range`
  };
  std::map<std::string, Counter> packages;  // by their powercap folder
  std::string unavailable;                  // why there is no reading, in one phrase; else empty
  std::string fix;                          // the command that would enable it

  static EnergyReading Now(const std::string& root = "/");
};

// Joules of all packages between two readings, one wrap of each allowed for. Error (kUnsupported):
// not available, because ...
Result<double> JoulesBetween(const EnergyReading& before, const EnergyReading& after);

}  // namespace pinion::harness
