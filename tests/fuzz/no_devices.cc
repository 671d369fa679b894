// In place of the devices, which the fuzzers do not compile: the names that checking options asks
// for.

#include "engine/run/device.h"

namespace pinion {

std::span<const DeviceRow> Devices() {
  static constexpr DeviceRow kDevices[] = {{"cpu", nullptr}};
  return kDevices;
}

}  // namespace pinion
