#include "harness/doctor/checks.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/host/cgroup.h"

extern char** environ;

namespace pinion::harness {
namespace {

using State = Check::State;

// A file below the target's root; nullopt if it cannot be read.
std::optional<std::string> Read(const DoctorTarget& target, const std::string& path) {
  const auto text = ReadFile(target.root + path, 1 << 20);
  if (!text) return std::nullopt;
  return std::string(Trim(*text));
}

Check Ok(const char* name, std::string found, std::string reason) {
  return {name, State::kOk, std::move(found), std::move(reason), "", {}};
}
Check Warn(const char* name, std::string found, std::string reason, std::string fix,
           std::vector<Change> changes = {}) {
  return {name,           State::kWarn,      std::move(found), std::move(reason),
          std::move(fix), std::move(changes)};
}
Check NotAvailable(const char* name, std::string reason) {
  return {name, State::kNotAvailable, "", std::move(reason), "", {}};
}

// Files sys/devices/system/cpu/cpuN/`below`, by CPU.
std::map<int, std::string> PerCpu(const DoctorTarget& target, const std::string& below) {
  std::map<int, std::string> values;
  const std::string folder = "sys/devices/system/cpu";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(target.root + folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.rfind("cpu", 0) != 0) continue;
    const auto number = ParseInt(name.substr(3), "CPU");
    const auto value = number ? Read(target, StrCat(folder, "/", name, "/", below)) : std::nullopt;
    if (value) values[static_cast<int>(*number)] = *value;
  }
  return values;
}

Check Governor(const DoctorTarget& target) {
  const auto governors = PerCpu(target, "cpufreq/scaling_governor");
  if (governors.empty())
    return NotAvailable("governor",
                        "no cpufreq here: in a virtual machine the host sets frequencies");
  std::set<std::string> kinds;
  std::vector<Change> changes;
  for (const auto& [cpu, governor] : governors) {
    kinds.insert(governor);
    if (governor != "performance")
      changes.push_back({StrCat("sys/devices/system/cpu/cpu", cpu, "/cpufreq/scaling_governor"),
                         governor, "performance"});
  }
  const std::string found =
      StrCat(Join({kinds.begin(), kinds.end()}, ", "), " on ", governors.size(), " CPUs");
  if (changes.empty()) return Ok("governor", found, "frequencies do not depend on load");
  return Warn("governor", found, "CPUs speed up only under load: early samples are too low",
              "cpupower frequency-set -g performance", std::move(changes));
}

Check Turbo(const DoctorTarget& target) {
  const struct {
    const char* path;
    const char* on;
  } places[] = {{"sys/devices/system/cpu/intel_pstate/no_turbo", "0"},
                {"sys/devices/system/cpu/cpufreq/boost", "1"}};
  for (const auto& place : places) {
    const auto value = Read(target, place.path);
    if (!value) continue;
    if (*value == place.on)
      return Ok("turbo", "on", "fastest; the frequency depends on the number of busy cores");
    return Warn("turbo", "off", "slower than this machine can be, but steadier",
                StrCat("echo ", place.on, " > /", place.path), {{place.path, *value, place.on}});
  }
  return NotAvailable("turbo", "this machine has neither intel_pstate nor cpufreq/boost");
}

Check Smt(const DoctorTarget& target) {
  const auto active = Read(target, "sys/devices/system/cpu/smt/active");
  if (!active) return NotAvailable("smt", "the kernel does not report it (smt/active is missing)");
  if (*active != "1") return Ok("smt", "off", "one thread per core");
  return Ok("smt", "on", "the binding `auto` takes one thread of each core; `all` takes both");
}

// Whether all memory is on one node; false if that cannot be read.
bool HasOneNode(const DoctorTarget& target) {
  const auto online = Read(target, "sys/devices/system/node/online");
  const auto nodes = online ? ParseCpuList(*online) : Result<std::vector<int>>(Unexpected(Error{}));
  return nodes && nodes->size() == 1;
}

Check NumaBalancing(const DoctorTarget& target) {
  const std::string path = "proc/sys/kernel/numa_balancing";
  const auto value = Read(target, path);
  if (!value) return NotAvailable("numa_balancing", "this kernel lacks it");
  if (*value == "0") return Ok("numa_balancing", "off", "pages stay where they were placed");
  if (HasOneNode(target))
    return Ok("numa_balancing", "on", "with one node there is nothing to balance");
  return Warn(
      "numa_balancing", "on",
      "the kernel unmaps pages to see which node uses them, and moves them; it leaves Pinion's "
      "weights and KV cache alone, but not other engines'",
      "sysctl -w kernel.numa_balancing=0", {{path, *value, "0"}});
}

// Any of the mode's bits turns it on: 1 drops page cache, 2 writes dirty pages, 4 swaps.
Check ZoneReclaim(const DoctorTarget& target) {
  const std::string path = "proc/sys/vm/zone_reclaim_mode";
  const auto value = Read(target, path);
  if (!value) return NotAvailable("zone_reclaim", "this kernel lacks it: it knows no NUMA nodes");
  if (*value == "0") return Ok("zone_reclaim", "off", "a full node borrows from others at once");
  const std::string found = StrCat("mode ", *value);
  if (HasOneNode(target))
    return Ok("zone_reclaim", found, "with one node there is no other to borrow from");
  return Warn("zone_reclaim", found,
              "a full node throws files out of memory before it borrows from another: loading and "
              "the first steps stall, and the model's files are read again",
              "sysctl -w vm.zone_reclaim_mode=0", {{path, *value, "0"}});
}

// Whether the kernel makes free memory contiguous at once for requests of huge pages, as of weights
// and KV; "defer" leaves it to the background, and the pages are small until then.
bool MakesRoomOnRequest(const std::string& defrag) {
  return defrag != "never" && defrag != "defer";
}

// Linux 6.1 puts shared pages together when it is told to, unless the setting forbids it.
bool JoinsSharedPages(const DoctorTarget& target, const std::string& setting) {
  if (setting == "deny") return false;
  const std::string release = Read(target, "proc/sys/kernel/osrelease").value_or("");
  int major = 0, minor = 0;
  const bool known = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
  return known && (major > 6 || (major == 6 && minor >= 1));
}

// Weights that the engines of a server share are in files in memory, which have a setting of their
// own.
Check SharedHugePages(const DoctorTarget& target, const std::string& chosen) {
  const std::string path = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const auto value = Read(target, path);
  const std::string shared = ChosenSetting(value.value_or("advise"));
  const bool by_itself = shared != "never" && shared != "deny";
  if (by_itself || JoinsSharedPages(target, shared))
    return Ok("huge_pages", chosen, "weights and KV get pages of 2 MiB");
  return Warn(
      "huge_pages", StrCat(chosen, ", for shared memory ", shared),
      "engines of one server (--data-parallel-size) each pack their own copy of the weights, "
      "because this kernel gives shared memory 4 KiB pages, which are 3 to 9 % slower to read "
      "(measured on an AMD Zen 5)",
      StrCat("echo advise > /", path), {{path, shared, "advise"}});
}

Check HugePages(const DoctorTarget& target) {
  const std::string folder = "sys/kernel/mm/transparent_hugepage/";
  const std::string path = folder + "enabled", defrag_path = folder + "defrag";
  const auto value = Read(target, path);
  if (!value) return NotAvailable("huge_pages", "this kernel has no transparent huge pages");
  const std::string chosen = ChosenSetting(*value);
  const std::string defrag = ChosenSetting(Read(target, defrag_path).value_or("madvise"));
  std::vector<Change> changes;
  if (chosen == "never") changes.push_back({path, chosen, "madvise"});
  if (!MakesRoomOnRequest(defrag)) changes.push_back({defrag_path, defrag, "madvise"});
  if (changes.empty()) return SharedHugePages(target, chosen);
  std::vector<std::string> commands;
  for (const Change& change : changes) commands.push_back(StrCat("echo madvise > /", change.path));
  if (chosen == "never")
    return Warn("huge_pages", chosen,
                "weights are in pages of 4 KiB: address translation takes time",
                Join(commands, "; "), std::move(changes));
  return Warn("huge_pages", StrCat(chosen, ", defrag ", defrag),
              "if memory is fragmented, weights and KV get pages of 4 KiB instead of 2 MiB",
              Join(commands, "; "), std::move(changes));
}

// Pages of hugetlbfs that are set aside and free, in bytes: folders hugepages-2048kB and others.
std::optional<uint64_t> FreeReservedBytes(const DoctorTarget& target) {
  const std::string folder = "sys/kernel/mm/hugepages";
  std::optional<uint64_t> bytes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(target.root + folder, ignored)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kBegin = "hugepages-", kEnd = "kB";
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    const auto kib = ParseInt(name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size()),
                              "a page's size");
    const auto text = Read(target, StrCat(folder, "/", name, "/free_hugepages"));
    const auto pages = text ? ParseInt(*text, "free pages") : Result<int64_t>(int64_t{0});
    if (kib && pages) bytes = bytes.value_or(0) + static_cast<uint64_t>(*pages * *kib) * 1024;
  }
  return bytes;
}

Check ReservedPages(const DoctorTarget& target) {
  const auto free = FreeReservedBytes(target);
  if (!free) return NotAvailable("reserved_pages", "this kernel has no hugetlbfs");
  if (*free == 0)
    return Ok("reserved_pages", "none free", "all memory is there for weights and KV");
  return Warn("reserved_pages", StrCat(FormatBytes(*free), " free"),
              "memory set aside for hugetlbfs, which Pinion does not use: its huge pages are "
              "transparent ones",
              "sysctl -w vm.nr_hugepages=0, unless another program is to get them");
}

std::string Variable(const DoctorTarget& target, const std::string& name) {
  const auto found = target.environment.find(name);
  return found == target.environment.end() ? "" : found->second;
}

Check Allocator(const DoctorTarget& target) {
  const std::string preload = Variable(target, "LD_PRELOAD");
  for (const char* name : {"tcmalloc", "jemalloc", "mimalloc"})
    if (preload.find(name) != std::string::npos)
      return Ok("allocator", name, "preloaded; many threads allocate without waiting");
  const std::string library = "libtcmalloc_minimal.so.4";
  for (const std::string& folder : target.library_folders) {
    std::error_code ignored;
    if (std::filesystem::exists(StrCat(folder, "/", library), ignored))
      return Warn("allocator", "glibc", "tcmalloc is installed and not preloaded",
                  StrCat("LD_PRELOAD=", folder, "/", library, " pinion ..."));
  }
  return Warn("allocator", "glibc", "the front end may be faster with tcmalloc",
              "apt install libtcmalloc-minimal4, then LD_PRELOAD=" + library + " pinion ...");
}

Check OpenMp(const DoctorTarget& target) {
  const std::string maps = Read(target, "proc/self/maps").value_or("");
  std::vector<std::string> runtimes;
  for (const char* name : {"libgomp", "libomp", "libiomp5"})
    if (maps.find(StrCat("/", name, ".so")) != std::string::npos) runtimes.emplace_back(name);
  if (runtimes.empty()) return NotAvailable("openmp", "no OpenMP runtime is loaded");
  const std::string found = Join(runtimes, " and ");
  if (runtimes.size() > 1)
    return Warn("openmp", found, "two runtimes make two teams of threads on the same CPUs",
                "unset LD_PRELOAD, or preload only one runtime");
  for (const char* name : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"})
    if (const std::string value = Variable(target, name); !value.empty())
      return Warn("openmp", StrCat(found, ", ", name, "=", value),
                  "it pins threads against --threads-bind", StrCat("unset ", name));
  return Ok("openmp", found, "one runtime, nothing in the environment pins its threads");
}

Check Quota(const DoctorTarget& target) {
  const CgroupLimits limits = ReadCgroups(target.root);
  if (!limits.cpu_quota) return Ok("quota", "none", "no cgroup limits CPU time");
  const std::string found = StrCat(*limits.cpu_quota, " CPUs");
  if (*limits.cpu_quota >= target.allowed_cpus)
    return Ok("quota", found, "as much as the usable CPUs");
  return Warn("quota", found,
              StrCat("more threads than that are stopped in every period (", limits.cpu_quota_file,
                     "); plans respect it"),
              "give the container or the slice more CPU time");
}

Check Cpuset(const DoctorTarget& target) {
  const auto online = Read(target, "sys/devices/system/cpu/online");
  const auto cpus = online ? ParseCpuList(*online) : Result<std::vector<int>>(Unexpected(Error{}));
  if (!cpus) return NotAvailable("cpuset", "sys/devices/system/cpu/online cannot be read");
  const int all = static_cast<int>(cpus->size());
  const std::string found = StrCat(target.allowed_cpus, " of ", all, " CPUs");
  if (target.allowed_cpus >= all) return Ok("cpuset", found, "all online CPUs may be used");
  return Warn("cpuset", found,
              "the others serve other processes, which share memory and caches with this one",
              "grep Cpus_allowed_list /proc/self/status; widen the cpuset or the taskset");
}

Check Mitigations(const DoctorTarget& target) {
  std::vector<std::string> active;
  std::error_code ignored;
  const std::string folder = "sys/devices/system/cpu/vulnerabilities";
  if (!std::filesystem::is_directory(target.root + folder, ignored))
    return NotAvailable("mitigations", "the kernel does not list vulnerabilities");
  for (const auto& entry : std::filesystem::directory_iterator(target.root + folder, ignored)) {
    const std::string name = entry.path().filename();
    const auto text = Read(target, StrCat(folder, "/", name));
    if (text && text->rfind("Mitigation", 0) == 0) active.push_back(name);
  }
  std::sort(active.begin(), active.end());
  if (active.empty()) return Ok("mitigations", "none active", "system calls cost nothing extra");
  return Ok("mitigations", Join(active, ", "),
            "they slow system calls and context switches, but hardly arithmetic; leave them on");
}

Check OtherLoad(const DoctorTarget& target) {
  constexpr double kBusyShare = 0.25;
  const auto text = Read(target, "proc/loadavg");
  const auto load =
      text ? ParseDouble(Split(*text, ' ').front(), "load") : Result<double>(Unexpected(Error{}));
  if (!load) return NotAvailable("load", "proc/loadavg cannot be read");
  const std::string found = StrCat("load average ", *load, " on ", target.allowed_cpus,
                                   target.allowed_cpus == 1 ? " CPU" : " CPUs");
  if (*load <= kBusyShare * target.allowed_cpus)
    return Ok("load", found, "almost nothing else is running");
  return Warn("load", found, "other processes compute: samples will vary and be marked",
              "ps -eo pcpu,pid,args --sort=-pcpu | head; end it or wait");
}

Check Swap(const DoctorTarget& target) {
  const auto text = Read(target, "proc/meminfo");
  if (!text) return NotAvailable("swap", "proc/meminfo cannot be read");
  uint64_t total = 0, free = 0;
  std::istringstream words(*text);
  std::string word;
  while (words >> word) {
    if (word == "SwapTotal:") words >> total;
    if (word == "SwapFree:") words >> free;
  }
  if (total == 0) return Ok("swap", "none", "weights cannot be paged out");
  const uint64_t used = total - std::min(free, total);
  if (used == 0)
    return Ok("swap", StrCat(FormatBytes(total * 1024), ", unused"), "nothing is paged out");
  return Warn("swap", StrCat(FormatBytes(used * 1024), " of ", FormatBytes(total * 1024), " used"),
              "swapped-out pages return at the speed of a disk", "swapoff -a && swapon -a");
}

}  // namespace

std::string ChosenSetting(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return text;
  return text.substr(open + 1, close - open - 1);
}

const char* Name(State state) {
  constexpr const char* kNames[] = {"ok", "warn", "not available"};
  return kNames[static_cast<size_t>(state)];
}

DoctorTarget LocalTarget(int allowed_cpus, const std::string& root) {
  DoctorTarget target;
  target.allowed_cpus = allowed_cpus;
  target.root = root.ends_with('/') ? root : root + "/";
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos)
      target.environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  target.library_folders = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
                            "/usr/local/lib"};
  return target;
}

std::vector<Check> Examine(const DoctorTarget& target) {
  std::vector<Check> checks;
  for (auto* check : {Governor, Turbo, Smt, NumaBalancing, ZoneReclaim, HugePages, ReservedPages,
                      Allocator, OpenMp, Quota, Cpuset, Mitigations, OtherLoad, Swap})
    checks.push_back(check(target));
  return checks;
}

}  // namespace pinion::harness
