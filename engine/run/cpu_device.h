#pragma once

#include <memory>

#include "engine/run/device.h"

namespace pinion {

// Thread teams on this machine's CPUs (engine/exec/cpu): plans threads and memory, chooses the ISA
// path and the kernels, and checks that the host's memory suffices.
std::unique_ptr<Device> MakeCpuDevice();

}  // namespace pinion
