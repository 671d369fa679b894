#include "harness/counters/energy.h"

#include <filesystem>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const auto text = ReadFile(path, 4096);
  const auto number = text ? ParseInt(Trim(*text), "energy") : Result<int64_t>(Unexpected(Error{}));
  if (!number || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

// "intel-rapl:0" is a package (AMD's too); "intel-rapl:0:1" a part of one, counted in it already.
bool IsPackage(const std::string& name) {
  return name.rfind("intel-rapl:", 0) == 0 &&
         name.find(':', name.find(':') + 1) == std::string::npos;
}

}  // namespace

EnergyReading EnergyReading::Now(const std::string& root) {
  EnergyReading reading;
  const std::string folder = root + "sys/class/powercap";
  std::error_code ignored;
  bool any = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename(), path = entry.path();
    if (!IsPackage(name)) continue;
    any = true;
    const auto energy = ReadNumber(path + "/energy_uj");
    const auto range = ReadNumber(path + "/max_energy_range_uj");
    if (energy && range) reading.packages[name] = {*energy, *range};
  }
  if (!any) {
    reading.unavailable =
        "/sys/class/powercap has no RAPL package (a virtual machine, or no driver)";
    reading.fix = "modprobe intel_rapl_msr";
  } else if (reading.packages.empty()) {
    reading.unavailable = "energy_uj below /sys/class/powercap cannot be read; run as root";
    reading.fix = "chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj";
  }
  return reading;
}

Result<double> JoulesBetween(const EnergyReading& before, const EnergyReading& after) {
  for (const EnergyReading* reading : {&before, &after})
    if (!reading->unavailable.empty())
      return Fail(ErrorCode::kUnsupported, StrCat("not available, because ", reading->unavailable));
  double joules = 0;
  for (const auto& [name, end] : after.packages) {
    const auto start = before.packages.find(name);
    if (start == before.packages.end()) continue;
    const uint64_t first = start->second.microjoules, last = end.microjoules;
    const uint64_t used = last >= first ? last - first : last + end.range - first;
    joules += static_cast<double>(used) * 1e-6;
  }
  return joules;
}

}  // namespace pinion::harness
