#include "harness/counters/own_ticks.h"

#include <unistd.h>

#include <map>

#include "harness/counters/process_tree.h"

namespace pinion::harness {

uint64_t OwnTicks(const std::vector<pid_t>& others) {
  std::map<pid_t, uint64_t> of_process;  // the trees may overlap
  for (const TreeProcess& process : ProcessTree(getpid())) of_process[process.id] = process.ticks;
  for (const pid_t root : others)
    for (const TreeProcess& process : ProcessTree(root)) of_process[process.id] = process.ticks;
  uint64_t ticks = 0;
  for (const auto& [id, own] : of_process) ticks += own;
  return ticks;
}

}  // namespace pinion::harness
