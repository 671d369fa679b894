#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pinion {

// The limits of this process's control groups: the tightest of all groups up to the mount.
struct CgroupLimits {
  std::optional<double> cpu_quota;       // CPUs' worth of time per period
  std::string cpu_quota_file;            // the file that sets it
  std::optional<std::vector<int>> cpus;  // the cpuset, ascending
  std::string cpus_file;
  std::optional<uint64_t> memory_limit_bytes;
  std::string memory_limit_file;
  std::optional<uint64_t> memory_headroom_bytes;  // limit - used + page cache, least of all groups
};

// Reads cgroup v2 (cpu.max, cpuset.cpus.effective, memory.max and .high) and v1
// (cpu.cfs_quota_us, cpuset.effective_cpus, memory.limit_in_bytes), both if both are mounted.
// `root` stands for "/": tests lay out proc/ and sys/ below a folder of their own. Files that
// cannot be read set no limit.
CgroupLimits ReadCgroups(const std::string& root);

}  // namespace pinion
