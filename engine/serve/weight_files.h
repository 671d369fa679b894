#pragma once

#include <map>
#include <vector>

#include "engine/base/memory_file.h"
#include "engine/base/result.h"
#include "engine/serve/replica_plan.h"

namespace pinion {

// The files in memory of packed weights that engines of one server share. They outlive the engines,
// so that one that is started again finds its weights packed.
class WeightFiles {
 public:
  // Makes one for each copy that several replicas share, and tells these.
  Status Connect(std::vector<ReplicaPlan>& replicas);
  // That of the replica, for its process to inherit; -1: it has weights of its own.
  int FdOf(const ReplicaPlan& replica) const;
  // Gives the memory back: no engine process is there that has it.
  void Clear() const;

 private:
  std::map<int, MemoryFile> files_;  // by copy
};

}  // namespace pinion
