#pragma once

#include <cstdlib>

#include "engine/run/options.h"

namespace pinion::testing {

// ISA path and device of the engine's tests: PINION_TEST_ISA and PINION_TEST_DEVICE of the
// environment, so that a new ISA path or device is held to the rules of the others. Default: auto.
inline void SetTestTarget(EngineOptions& options) {
  if (const char* isa = std::getenv("PINION_TEST_ISA")) options.isa = isa;
  if (const char* device = std::getenv("PINION_TEST_DEVICE")) options.device = device;
}

}  // namespace pinion::testing
