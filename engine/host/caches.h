#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pinion {

// One cache that a CPU reads data through.
struct Cache {
  int level = 0;  // 1 is nearest
  uint64_t bytes = 0;
  std::vector<int> cpus;  // online ones that share it, ascending
};

// The data caches of one CPU, nearest first, from sysfs; empty if unknown. A virtual machine may
// see only a share of them, or more than it gets. `root` stands for "/".
std::vector<Cache> CachesOf(int cpu, const std::string& root = "/");

}  // namespace pinion
