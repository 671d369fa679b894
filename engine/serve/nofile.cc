#include "engine/serve/nofile.h"

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
  constexpr size_t kOthers = 128;
  return std::min(wanted, std::max<size_t>(descriptors, kOthers + 1) - kOthers);
}

}  // namespace pinion
