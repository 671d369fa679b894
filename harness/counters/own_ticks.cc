#include "harness/counters/own_ticks.h"

#include <unistd.h>

#include <map>

#include "harness/counters/process_tree.h"

namespace pinion::harness {

uint64_t TicksOf(const std::vector<pid_t>& roots) {
  std::map<pid_t, uint64_t> of_process;  // the trees may overlap
  for (const pid_t root : roots)
    for (const TreeProcess& process : ProcessTree(root)) of_process[process.id] = process.ticks;
  uint64_t ticks = 0;
  for (const auto& [id, own] : of_process) ticks += own;
  return ticks;
}

uint64_t OwnTicks(std::vector<pid_t> others) {
  others.push_back(getpid());
  return TicksOf(others);
}

}  // namespace pinion::harness
