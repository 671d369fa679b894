#include "engine/base/nofile.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion {

Result<DescriptorLimits> RaiseNofile() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot read RLIMIT_NOFILE: ", std::strerror(errno)));
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot raise RLIMIT_NOFILE from ", before, " to ",
                                       limit.rlim_max, ": ", std::strerror(errno)));
  return DescriptorLimits{before, limit.rlim_max};
}

size_t ConnectionsWithin(size_t descriptors, size_t wanted) {
  // The engine's links and logs, and a helper process for each worker: 24 with the default number.
  const size_t others = std::clamp<size_t>(descriptors / 2, 24, 128);
  return std::min(wanted, std::max(descriptors, others + 1) - others);
}

}  // namespace pinion
