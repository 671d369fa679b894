#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/cli/sweep_flags.h"

namespace pinion::harness {

// "preset:tiny" -> "out/preset-tiny".
std::string DefaultFolder(std::string model);

// `pinion sweep --launcher`: prints the manifest, or runs the sweeps of all nodes and reports on
// their trials together.
Status RunFleet(const SweepFlags& flags);

}  // namespace pinion::harness
