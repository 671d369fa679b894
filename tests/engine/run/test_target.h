#pragma once

#include <cstdlib>

#include "engine/run/options.h"

namespace pinion::testing {

// What the engine's tests compute with: the environment's PINION_TEST_ISA and PINION_TEST_DEVICE,
// so that a new ISA path or device is held to what the others are held to. Without them: auto.
inline void SetTestTarget(EngineOptions& options) {
  if (const char* isa = std::getenv("PINION_TEST_ISA")) options.isa = isa;
  if (const char* device = std::getenv("PINION_TEST_DEVICE")) options.device = device;
}

}  // namespace pinion::testing
