#pragma once

#include <cstddef>

#include "engine/base/result.h"

namespace pinion {

struct DescriptorLimits {
  size_t before = 0, now = 0;
};

// Raises this process's limit of open descriptors (RLIMIT_NOFILE) to the most it may have: every
// connection is one, and the usual 1024 are few for a server and for its load generator.
Result<DescriptorLimits> RaiseNofile();

// Below, a server could hardly start: files, links, the chat helpers and a few connections.
inline constexpr size_t kFewestDescriptors = 32;

// The connections that a server allows: at most `wanted`, and few enough to leave descriptors for
// files, the engine's link and the chat helpers.
size_t ConnectionsWithin(size_t descriptors, size_t wanted);

}  // namespace pinion
