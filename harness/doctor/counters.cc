#include "harness/doctor/counters.h"

#include <filesystem>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using State = Check::State;

bool Exists(const DoctorTarget& target, const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(target.root + path, ignored);
}

std::string Text(const DoctorTarget& target, const std::string& path) {
  return std::string(Trim(ReadFile(target.root + path, 1 << 20).value_or("")));
}

Check Readable(const char* name, std::string found, std::string reason) {
  return {name, State::kOk, std::move(found), std::move(reason), "", {}};
}
Check NotReadable(const char* name, std::string reason, std::string fix = "") {
  return {name, State::kNotAvailable, "", std::move(reason), std::move(fix), {}};
}

Check PerfEvent(const DoctorTarget& target) {
  const std::string paranoid = Text(target, "proc/sys/kernel/perf_event_paranoid");
  if (paranoid.empty()) return NotReadable("perf_event", "this kernel has no perf_event");
  if (!Exists(target, "sys/bus/event_source/devices/cpu"))
    return NotReadable("perf_event",
                       "the CPU has no performance counters (a virtual machine without a PMU)");
  const auto level = ParseInt(paranoid, "perf_event_paranoid");
  if (!level || *level > 2)
    return NotReadable("perf_event", "perf_event_paranoid is " + paranoid,
                       "sysctl -w kernel.perf_event_paranoid=2");
  return Readable("perf_event", "paranoid " + paranoid,
                  "cycles and instructions of your own processes");
}

Check Rapl(const DoctorTarget& target) {
  const std::string energy = "sys/class/powercap/intel-rapl:0/energy_uj";
  if (!Exists(target, "sys/class/powercap/intel-rapl:0"))
    return NotReadable("rapl", "/sys/class/powercap has no RAPL package",
                       "modprobe intel_rapl_msr; a virtual machine has none");
  if (Text(target, energy).empty())
    return NotReadable("rapl", "/" + energy + " cannot be read", "chmod a+r /" + energy);
  return Readable("rapl", "energy_uj", "joules per output token in `pinion load`");
}

Check Resctrl(const DoctorTarget& target) {
  if (Exists(target, "sys/fs/resctrl/info/L3_MON"))
    return Readable("resctrl", "L3_MON", "memory traffic and cache occupancy per group");
  const bool counts = Text(target, "proc/cpuinfo").find("cqm_mbm_total") != std::string::npos;
  if (!counts)
    return NotReadable("resctrl", "the CPU does not count memory traffic (no cqm_mbm_total)");
  return NotReadable("resctrl", "it is not mounted", "mount -t resctrl resctrl /sys/fs/resctrl");
}

Check Pcm(const DoctorTarget& target) {
  if (Text(target, "proc/cpuinfo").find("GenuineIntel") == std::string::npos)
    return NotReadable("pcm", "Intel's tools support only Intel processors");
  if (!Exists(target, "usr/sbin/pcm"))
    return NotReadable("pcm", "/usr/sbin/pcm is not installed", "apt install pcm");
  if (!Exists(target, "dev/cpu/0/msr"))
    return NotReadable("pcm", "/dev/cpu/0/msr is missing", "modprobe msr");
  return Readable("pcm", "/usr/sbin/pcm", "memory bandwidth of every socket");
}

}  // namespace

std::vector<Check> ExamineCounters(const DoctorTarget& target) {
  return {PerfEvent(target), Rapl(target), Resctrl(target), Pcm(target)};
}

}  // namespace pinion::harness
