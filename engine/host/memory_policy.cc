#include "engine/host/memory_policy.h"

#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr std::array kModeNames = {"local", "strict", "preferred", "interleave"};

// MPOL_PREFERRED takes one node on every kernel; MPOL_PREFERRED_MANY is there from Linux 5.15 on.
int KernelMode(const MemoryPolicy& policy) {
  switch (policy.mode) {
    case MemoryMode::kStrict:
      return MPOL_BIND;
    case MemoryMode::kPreferred:
      return policy.nodes.size() == 1 ? MPOL_PREFERRED : MPOL_PREFERRED_MANY;
    case MemoryMode::kInterleave:
      return MPOL_INTERLEAVE;
    case MemoryMode::kLocal:
      break;
  }
  return MPOL_LOCAL;
}

// One bit a node.
std::vector<unsigned long> MaskOf(const std::vector<int>& nodes) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(static_cast<size_t>(nodes.back()) / kBits + 1, 0);
  for (const int node : nodes)
    mask[static_cast<size_t>(node) / kBits] |= 1UL << (static_cast<size_t>(node) % kBits);
  return mask;
}

std::string WhyRefused(const MemoryPolicy& policy, int error) {
  std::string why = StrCat("--memory-policy ", Name(policy.mode),
                           " is not in force: the kernel refuses mbind for node ",
                           FormatCpuList(policy.nodes), " (", std::strerror(error), ")");
  if (error == EPERM || error == ENOSYS) why += ", as in containers without CAP_SYS_NICE";
  return why + "; pages lie where they are first touched";
}

}  // namespace

const BindMemory kBindMemory = mbind;

const char* Name(MemoryMode mode) { return kModeNames.at(static_cast<size_t>(mode)); }

MemoryMode MemoryModeOf(const std::string& name) {
  const auto at = std::find(kModeNames.begin(), kModeNames.end(), name);
  CHECK(at != kModeNames.end()) << name;
  return static_cast<MemoryMode>(at - kModeNames.begin());
}

std::vector<int> NodesWithMemory(const Machine& machine) {
  std::vector<int> nodes;
  for (const NumaNode& node : machine.nodes)
    if (node.memory_allowed && node.memory_bytes > 0) nodes.push_back(node.id);
  return nodes;
}

std::vector<MemoryPolicy> PoliciesFor(MemoryMode mode, const Machine& machine, const Plan& plan) {
  std::vector<MemoryPolicy> policies(plan.ranks.size(), MemoryPolicy{mode});
  for (size_t rank = 0; rank < policies.size() && mode != MemoryMode::kLocal; ++rank)
    policies[rank].nodes =
        mode == MemoryMode::kInterleave ? NodesWithMemory(machine) : plan.ranks[rank].nodes;
  return policies;
}

int SetPolicy(void* data, size_t bytes, const MemoryPolicy& policy, BindMemory bind) {
  if (policy.mode == MemoryMode::kLocal || policy.nodes.empty()) return 0;
  const std::vector<unsigned long> mask = MaskOf(policy.nodes);
  // The kernel looks at one bit less than it is told of.
  const unsigned long most = mask.size() * 8 * sizeof(unsigned long) + 1;
  return bind(data, bytes, KernelMode(policy), mask.data(), most, 0) == 0 ? 0 : errno;
}

GrantedPolicies Grant(std::vector<MemoryPolicy> asked, BindMemory bind) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const MemoryPolicy& policy : asked) {
    void* page =
        mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) break;  // nothing can be tried; the next allocation says so
    const int error = SetPolicy(page, page_bytes, policy, bind);
    munmap(page, page_bytes);
    if (error == 0) continue;
    return {std::vector<MemoryPolicy>(asked.size()), WhyRefused(policy, error)};
  }
  return {std::move(asked), ""};
}

}  // namespace pinion
