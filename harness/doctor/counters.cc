#include "harness/doctor/counters.h"

#include <filesystem>
#include <optional>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using State = Check::State;

bool Exists(const Patient& patient, const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(patient.root + path, ignored);
}

std::string Text(const Patient& patient, const std::string& path) {
  return std::string(Trim(ReadFile(patient.root + path, 1 << 20).value_or("")));
}

Check There(const char* name, std::string found, std::string reason) {
  return {name, State::kOk, std::move(found), std::move(reason), "", {}};
}
Check Missing(const char* name, std::string reason, std::string fix = "") {
  return {name, State::kNotAvailable, "", std::move(reason), std::move(fix), {}};
}

Check PerfEvent(const Patient& patient) {
  const std::string paranoid = Text(patient, "proc/sys/kernel/perf_event_paranoid");
  if (paranoid.empty()) return Missing("perf_event", "this kernel has no perf_event");
  if (!Exists(patient, "sys/bus/event_source/devices/cpu"))
    return Missing("perf_event",
                   "the CPU shows no performance counters (a virtual machine without a PMU)");
  const auto level = ParseInt(paranoid, "perf_event_paranoid");
  if (!level || *level > 2)
    return Missing("perf_event", "perf_event_paranoid is " + paranoid,
                   "sysctl -w kernel.perf_event_paranoid=2");
  return There("perf_event", "paranoid " + paranoid, "cycles and instructions of own processes");
}

Check Rapl(const Patient& patient) {
  const std::string energy = "sys/class/powercap/intel-rapl:0/energy_uj";
  if (!Exists(patient, "sys/class/powercap/intel-rapl:0"))
    return Missing("rapl", "/sys/class/powercap has no RAPL package",
                   "modprobe intel_rapl_msr; a virtual machine has none");
  if (Text(patient, energy).empty())
    return Missing("rapl", "/" + energy + " cannot be read", "chmod a+r /" + energy);
  return There("rapl", "energy_uj", "joules per output token in `pinion load`");
}

Check Resctrl(const Patient& patient) {
  if (Exists(patient, "sys/fs/resctrl/info/L3_MON"))
    return There("resctrl", "L3_MON", "memory traffic and cache occupancy per group");
  const bool counts = Text(patient, "proc/cpuinfo").find("cqm_mbm_total") != std::string::npos;
  if (!counts)
    return Missing("resctrl", "the CPU does not count memory traffic (no cqm_mbm_total)");
  return Missing("resctrl", "it is not mounted", "mount -t resctrl resctrl /sys/fs/resctrl");
}

Check Pcm(const Patient& patient) {
  if (Text(patient, "proc/cpuinfo").find("GenuineIntel") == std::string::npos)
    return Missing("pcm", "Intel's tools know Intel's processors only");
  if (!Exists(patient, "usr/sbin/pcm"))
    return Missing("pcm", "/usr/sbin/pcm is not installed", "apt install pcm");
  if (!Exists(patient, "dev/cpu/0/msr"))
    return Missing("pcm", "/dev/cpu/0/msr is missing", "modprobe msr");
  return There("pcm", "/usr/sbin/pcm", "memory bandwidth of every socket");
}

}  // namespace

std::vector<Check> ExamineCounters(const Patient& patient) {
  return {PerfEvent(patient), Rapl(patient), Resctrl(patient), Pcm(patient)};
}

}  // namespace pinion::harness
