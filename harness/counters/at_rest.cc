#include "harness/counters/at_rest.h"

#include <unistd.h>

#include "engine/base/clock.h"
#include "harness/counters/own_ticks.h"

namespace pinion::harness {

bool AwaitRest(const std::vector<pid_t>& processes, double limit_s,
               const std::function<bool()>& stops) {
  constexpr unsigned kLookUs = 200'000;
  constexpr uint64_t kTicksAtRest = 2;  // of 10 ms
  const int64_t start_ns = NowNs();
  uint64_t last = TicksOf(processes);
  while (SecondsSince(start_ns) < limit_s && !stops()) {
    usleep(kLookUs);
    const uint64_t now = TicksOf(processes);
    if (now <= last + kTicksAtRest) return true;
    last = now;
  }
  return false;
}

}  // namespace pinion::harness
