#include "engine/host/affinity.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr int kMaxCpus = 1 << 16;
constexpr int kSetsForMaxCpus = kMaxCpus / CPU_SETSIZE;
using Mask = std::array<cpu_set_t, kSetsForMaxCpus>;

}  // namespace

Result<std::vector<int>> ThreadAffinity() { return AffinityOf(0); }

Result<std::vector<int>> AffinityOf(int process) {
  Mask mask{};
  if (sched_getaffinity(process, sizeof mask, mask.data()) != 0)
    return Fail(ErrorCode::kIo, StrCat("cannot read the affinity of ",
                                       process == 0 ? "this thread" : StrCat("process ", process),
                                       ": ", std::strerror(errno)));
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (CPU_ISSET_S(static_cast<size_t>(cpu), sizeof mask, mask.data())) cpus.push_back(cpu);
  return cpus;
}

Status SetThreadAffinity(const std::vector<int>& cpus) {
  Mask mask{};
  for (int cpu : cpus) {
    if (cpu < 0 || cpu >= kMaxCpus)
      return Fail(ErrorCode::kUsage, StrCat("cpu ", cpu, " is not in 0-", kMaxCpus - 1));
    CPU_SET_S(static_cast<size_t>(cpu), sizeof mask, mask.data());
  }
  if (sched_setaffinity(0, sizeof mask, mask.data()) != 0) {
    const int code = errno;
    return Fail(
        code == EINVAL ? ErrorCode::kUsage : ErrorCode::kIo,
        StrCat("cannot run on cpu ", FormatCpuList(cpus), " (", std::strerror(code),
               "): a CPU does not exist, is offline, or is outside the cpuset; `pinion topo` "
               "lists the allowed ones"));
  }
  // The kernel silently drops forbidden CPUs from a mask of which some are allowed.
  PINION_ASSIGN(const std::vector<int> granted, ThreadAffinity());
  for (int cpu : cpus)
    if (!std::binary_search(granted.begin(), granted.end(), cpu))
      return Fail(ErrorCode::kUsage, StrCat("cannot run on cpu ", cpu, ": of ", FormatCpuList(cpus),
                                            " only ", FormatCpuList(granted), " is allowed"));
  return {};
}

}  // namespace pinion
