#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pinion {

// What this process's control groups leave it, the tightest limit of every group up to the mount.
struct CgroupLimits {
  std::optional<double> cpu_quota;       // CPUs' worth of time per period
  std::string cpu_quota_file;            // which file says so
  std::optional<std::vector<int>> cpus;  // the cpuset, ascending
  std::string cpus_file;
  std::optional<uint64_t> memory_limit_bytes;
  std::string memory_limit_file;
  std::optional<uint64_t> memory_headroom_bytes;  // limit - used + page cache, least of all groups
};

// Reads cgroup v2 (cpu.max, cpuset.cpus.effective, memory.max and .high) and v1
// (cpu.cfs_quota_us, cpuset.effective_cpus, memory.limit_in_bytes), both where both are mounted.
// `root` stands for "/": tests lay out proc/ and sys/ below a folder of their own. What cannot be
// read limits nothing.
CgroupLimits ReadCgroups(const std::string& root);

}  // namespace pinion
