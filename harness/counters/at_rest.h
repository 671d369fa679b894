#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

namespace pinion::harness {

// Waits until these processes and their descendants compute nothing, that is at most a tenth of a
// CPU for 0.2 s. False: after `limit_s` they still did, or `stops` said so.
bool AwaitRest(const std::vector<pid_t>& processes, double limit_s,
               const std::function<bool()>& stops);

}  // namespace pinion::harness
