#include "harness/counters/own_ticks.h"

#include <unistd.h>

#include "harness/counters/process_tree.h"

namespace pinion::harness {

uint64_t OwnTicks() {
  uint64_t ticks = 0;
  for (const TreeProcess& process : ProcessTree(getpid())) ticks += process.ticks;
  return ticks;
}

}  // namespace pinion::harness
