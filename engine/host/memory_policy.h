#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/host/binding.h"
#include "engine/host/machine.h"

namespace pinion {

// On which NUMA nodes the pages of a rank's memory come to lie:
//   kLocal       on that of the thread that touches them first; if it is full, on another
//   kStrict      on the policy's nodes alone; a page that does not fit there ends the process
//   kPreferred   on the policy's nodes; if they are full, on others
//   kInterleave  in turn on all of the policy's nodes; if one is full, on others
enum class MemoryMode { kLocal, kStrict, kPreferred, kInterleave };
const char* Name(MemoryMode mode);                 // "local", "strict", "preferred", "interleave"
MemoryMode MemoryModeOf(const std::string& name);  // of one of these names

struct MemoryPolicy {
  MemoryMode mode = MemoryMode::kLocal;
  std::vector<int> nodes = {};  // ascending; kLocal: none
  bool operator==(const MemoryPolicy&) const = default;
};

// The policy of each rank of `plan`: over its own nodes, or, if interleaved, over all that have
// memory which may be used.
std::vector<MemoryPolicy> PoliciesFor(MemoryMode mode, const Machine& machine, const Plan& plan);

// The nodes that have memory which may be used, ascending.
std::vector<int> NodesWithMemory(const Machine& machine);

// mbind(2), or a test's stand-in: 0, or -1 and errno.
using BindMemory = long (*)(void* data, unsigned long bytes, int mode, const unsigned long* nodes,
                            unsigned long most_nodes, unsigned flags);
extern const BindMemory kBindMemory;

// Sets the policy of whole pages that were never touched: 0, or errno. A kLocal one leaves them as
// they are.
int SetPolicy(void* data, size_t bytes, const MemoryPolicy& policy, BindMemory bind = kBindMemory);

// The policies that this process gets: those asked for, or local ones and a sentence that says why,
// if the kernel refuses one of them, as it does in many containers. Tries them on a page.
struct GrantedPolicies {
  std::vector<MemoryPolicy> policies;
  std::string refusal;
};
GrantedPolicies Grant(std::vector<MemoryPolicy> asked, BindMemory bind = kBindMemory);

}  // namespace pinion
