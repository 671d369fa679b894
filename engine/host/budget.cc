#include "engine/host/budget.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/host/affinity.h"
#include "engine/host/cgroup.h"
#include "engine/host/cores.h"

namespace pinion {
namespace {

std::string Base(const std::string& root) { return root == "/" ? "" : root; }

// The text after "name:" in a file of such lines (/proc/meminfo, /proc/self/status).
std::optional<std::string> Field(const std::string& path, std::string_view name) {
  const auto text = ReadFile(path, 1 << 24);
  if (!text) return std::nullopt;
  for (const std::string& line : Split(*text, '\n'))
    if (line.rfind(StrCat(name, ":"), 0) == 0)
      return std::string(Trim(std::string_view(line).substr(name.size() + 1)));
  return std::nullopt;
}

// A field that is counted in kB.
std::optional<uint64_t> KibField(const std::string& path, std::string_view name) {
  const auto text = Field(path, name);
  if (!text) return std::nullopt;
  const auto kib = ParseInt(Split(*text, ' ')[0], name);
  if (!kib || *kib < 0) return std::nullopt;
  return static_cast<uint64_t>(*kib) * 1024;
}

std::optional<uint64_t> MemInfoBytes(const std::string& root, std::string_view name) {
  return KibField(Base(root) + "/proc/meminfo", name);
}

// The free memory of a node: its file of lines "Node 0 MemFree:  1024 kB" has no MemAvailable, so
// page cache and slabs that can be dropped are added. nullopt if the system does not tell.
std::optional<uint64_t> NodeAvailableBytes(const std::string& root, int node) {
  const std::string path = StrCat(Base(root), "/sys/devices/system/node/node", node, "/meminfo");
  uint64_t sum = 0;
  for (const char* name : {"MemFree", "Active(file)", "Inactive(file)", "SReclaimable"}) {
    const auto bytes = KibField(path, StrCat("Node ", node, " ", name));
    if (!bytes && std::string_view(name) == "MemFree") return std::nullopt;
    sum += bytes.value_or(0);
  }
  return sum;
}

Result<std::vector<int>> Affinity(const std::string& root) {
  if (root == "/") return ThreadAffinity();
  const auto list = Field(root + "/proc/self/status", "Cpus_allowed_list");
  if (!list) return Fail(ErrorCode::kIo, StrCat("no Cpus_allowed_list in ", root));
  return ParseCpuList(*list);
}

std::vector<int> Ids(const Machine& machine) {
  std::vector<int> ids;
  for (const Cpu& cpu : machine.cpus) ids.push_back(cpu.id);
  return ids;
}

// Keeps only CPUs that are in `allowed`; if that removes any, records `source` as the reason.
void Narrow(Budget& budget, std::vector<int> allowed, std::string_view source) {
  std::sort(allowed.begin(), allowed.end());
  std::vector<int> kept;
  std::set_intersection(budget.cpus.begin(), budget.cpus.end(), allowed.begin(), allowed.end(),
                        std::back_inserter(kept));
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  if (kept.size() < budget.cpus.size())
    budget.reasons.push_back(StrCat(source, " leaves ", kept.size(), " of ", budget.cpus.size(),
                                    " CPUs: ", kept.empty() ? "none" : FormatCpuList(kept)));
  budget.cpus = std::move(kept);
}

Status CheckLimits(const Machine& machine, const BudgetLimits& limits) {
  if (limits.cpu_quota && !(*limits.cpu_quota > 0))
    return Fail(ErrorCode::kUsage, StrCat("a CPU quota of ", *limits.cpu_quota,
                                          " leaves no time to compute; give a number above 0"));
  if (!limits.allowed_cpus) return {};
  for (int cpu : *limits.allowed_cpus)
    if (!machine.Find(cpu))
      return Fail(ErrorCode::kUsage,
                  StrCat("allowed cpu ", cpu, " does not exist or is offline; this machine has ",
                         FormatCpuList(Ids(machine))));
  return {};
}

void ApplyQuota(Budget& budget, const std::optional<double>& quota, std::string_view source) {
  budget.max_threads = static_cast<int>(budget.cpus.size());
  if (!quota) return;
  budget.cpu_quota = quota;
  // Compared as doubles first: a huge quota must not overflow the int.
  const double whole = std::max(1.0, std::floor(*quota));
  if (whole < budget.max_threads) budget.max_threads = static_cast<int>(whole);
  budget.reasons.push_back(StrCat(source, " grants ", *quota, " CPUs of time: at most ",
                                  budget.max_threads,
                                  budget.max_threads == 1 ? " thread" : " threads"));
}

void ApplyMemory(Budget& budget, const Machine& machine, const BudgetLimits& limits,
                 const CgroupLimits& groups) {
  uint64_t total = 0;
  bool everywhere = true;
  for (const NumaNode& node : machine.nodes) {
    if (node.memory_allowed) total += node.memory_bytes;
    everywhere &= node.memory_allowed;
  }
  budget.memory_total_bytes = budget.memory_available_bytes = total;
  if (!machine.this_system) return;
  // Nodes may report less than is installed (memory plugged in later), so their sum counts only if
  // some of them are forbidden.
  const uint64_t installed = MemInfoBytes(limits.root, "MemTotal").value_or(total);
  budget.memory_total_bytes = everywhere ? installed : std::min(total, installed);
  if (groups.memory_limit_bytes && *groups.memory_limit_bytes < budget.memory_total_bytes) {
    budget.memory_total_bytes = *groups.memory_limit_bytes;
    budget.reasons.push_back(StrCat(groups.memory_limit_file, " limits memory to ",
                                    FormatBytes(*groups.memory_limit_bytes)));
  }
  budget.memory_available_bytes =
      std::min(budget.memory_total_bytes, AvailableMemoryBytes(limits.root));
  for (const NumaNode& node : machine.nodes) {
    auto bytes = NodeAvailableBytes(limits.root, node.id);
    // Memory that is plugged in as it is needed counts at once in the whole system's figures, in a
    // node's only once it is there.
    if (bytes && machine.nodes.size() == 1) bytes = std::max(*bytes, budget.memory_available_bytes);
    if (bytes) budget.node_available_bytes[node.id] = *bytes;
  }
}

// Processes with CPUs of their own, as a launcher bound them, each as many as the next: the time
// that the quota grants is for all of them.
void ShareQuota(Budget& budget, size_t parts) {
  if (!budget.cpu_quota) return;
  const double whole = *budget.cpu_quota, share = whole / static_cast<double>(parts);
  budget.cpu_quota = share;
  const double threads = std::max(1.0, std::floor(share));
  if (threads < budget.max_threads) budget.max_threads = static_cast<int>(threads);
  budget.reasons.push_back(StrCat("the launcher started ", parts,
                                  " processes here, which share the ", whole,
                                  " CPUs of time: at most ", budget.max_threads,
                                  budget.max_threads == 1 ? " thread" : " threads", " each"));
}

}  // namespace

Result<Budget> ComputeBudget(const Machine& machine, const BudgetLimits& limits) {
  PINION_TRY(CheckLimits(machine, limits));
  Budget budget;
  budget.cpus = Ids(machine);
  const CgroupLimits groups = machine.this_system ? ReadCgroups(limits.root) : CgroupLimits{};
  if (limits.allowed_cpus) {
    Narrow(budget, *limits.allowed_cpus, "the list of allowed CPUs");
  } else if (machine.this_system) {
    if (groups.cpus) Narrow(budget, *groups.cpus, StrCat("the cpuset ", groups.cpus_file));
    PINION_ASSIGN(std::vector<int> mask, Affinity(limits.root));
    Narrow(budget, std::move(mask), "the affinity mask (taskset, cpuset)");
  }
  if (budget.cpus.empty())
    return Fail(ErrorCode::kUsage,
                StrCat("no CPU is left to compute on (", Join(budget.reasons, "; "),
                       "); widen the affinity mask, cpuset or list of allowed CPUs"));
  const bool given = limits.cpu_quota.has_value();
  ApplyQuota(budget, given ? limits.cpu_quota : groups.cpu_quota,
             given ? "the CPU quota" : groups.cpu_quota_file);
  ApplyMemory(budget, machine, limits, groups);
  return budget;
}

Budget PartOf(const Machine& machine, Budget whole, size_t part, size_t parts, bool divide_cpus) {
  if (parts < 2) return whole;
  whole.memory_available_bytes /= parts;
  for (auto& [node, bytes] : whole.node_available_bytes) bytes /= parts;
  if (!divide_cpus) {
    ShareQuota(whole, parts);
    return whole;
  }
  const ChosenCores cores = WithoutEfficiencyCores(machine, AllowedCores(machine, whole), parts);
  whole.cpus.clear();
  const auto take_share_of = [&](const std::vector<Core>& all) {
    const size_t shares = std::min(parts, all.size());
    const std::vector<Core> own = DivideCores(all, shares)[part % shares];
    for (const Core& core : own)
      whole.cpus.insert(whole.cpus.end(), core.cpus.begin(), core.cpus.end());
  };
  take_share_of(cores.computing);
  // Apart, so that every process has large cores; for front ends.
  if (cores.left_out.size() >= parts) take_share_of(cores.left_out);
  std::sort(whole.cpus.begin(), whole.cpus.end());
  const int share = std::max(1, whole.max_threads / static_cast<int>(parts));
  whole.max_threads = std::min(share, static_cast<int>(whole.cpus.size()));
  whole.reasons.push_back(StrCat("the launcher started ", parts,
                                 " processes here, which divide the CPUs: this one has ",
                                 FormatCpuList(whole.cpus)));
  return whole;
}

uint64_t AvailableMemoryBytes(const std::string& root) {
  const uint64_t free = MemInfoBytes(root, "MemAvailable").value_or(0);
  return std::min(free, ReadCgroups(root).memory_headroom_bytes.value_or(free));
}

Json ToJson(const Budget& budget) {
  Json object;
  object.Set("cpus", budget.cpus);
  object.Set("cpu_quota", budget.cpu_quota ? Json(*budget.cpu_quota) : Json());
  object.Set("max_threads", budget.max_threads);
  object.Set("memory_total_bytes", budget.memory_total_bytes);
  object.Set("memory_available_bytes", budget.memory_available_bytes);
  object.Set("reasons", budget.reasons);
  return object;
}

}  // namespace pinion
