#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/serve/replica_plan.h"

namespace pinion {

// The addresses at which engines of one server hand each other keys and values: Unix sockets in a
// folder that is this user's alone, and goes with the object.
class PrefillSockets {
 public:
  PrefillSockets() = default;
  ~PrefillSockets();
  PrefillSockets(const PrefillSockets&) = delete;
  PrefillSockets& operator=(const PrefillSockets&) = delete;

  // Gives the first `prefill` replicas the role to compute the prompts of the others; 0: nothing to
  // do.
  Status Connect(size_t prefill, std::vector<ReplicaPlan>& replicas);

 private:
  std::string folder_;
};

}  // namespace pinion
