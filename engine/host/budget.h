#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/host/machine.h"

namespace pinion {

// The CPUs and bytes that this process may really use.
struct Budget {
  std::vector<int> cpus;                // online, in the affinity mask and the cpuset; ascending
  std::optional<double> cpu_quota;      // CPUs' worth of time per period; unset: unlimited
  int max_threads = 1;                  // of all ranks together: min(cpus, max(1, floor(quota)))
  uint64_t memory_total_bytes = 0;      // min of RAM and every cgroup limit on the way up
  uint64_t memory_available_bytes = 0;  // page cache counted as reclaimable
  // Of this system's NUMA nodes, as far as it tells: free now, page cache counted as above.
  std::map<int, uint64_t> node_available_bytes;
  std::vector<std::string> reasons;  // one line per limit, with its origin
};

// Overrides for synthetic machines and tests; unset: read from the operating system.
struct BudgetLimits {
  std::optional<std::vector<int>> allowed_cpus;
  std::optional<double> cpu_quota;
  // The folder that holds proc/ and sys/. For roots other than "/", the affinity mask is read from
  // proc/self/status below it.
  std::string root = "/";
};

// online CPUs ∩ sched_getaffinity ∩ cpuset, capped by the CFS quota (cgroup v2 cpu.max, v1
// cpu.cfs_quota_us, the smallest anywhere up the chain). For a machine other than this system only
// `limits` applies. Errors: no CPU left, an allowed CPU that does not exist, a quota <= 0.
Result<Budget> ComputeBudget(const Machine& machine, const BudgetLimits& limits = {});

// The budget of process `part` of `parts` that share `whole`: an equal share of the memory, of the
// threads that the quota allows and, if `divide_cpus`, of the cores: whole nodes or L3 domains if
// there are enough; with more processes than cores, some get the same core.
Budget PartOf(const Machine& machine, Budget whole, size_t part, size_t parts, bool divide_cpus);

// Free memory now (MemAvailable and the cgroups' headroom), for sizing KV after loading.
uint64_t AvailableMemoryBytes(const std::string& root = "/");

// {"cpus","cpu_quota","max_threads","memory_total_bytes","memory_available_bytes","reasons"}
Json ToJson(const Budget& budget);

}  // namespace pinion
