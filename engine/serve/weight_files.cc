#include "engine/serve/weight_files.h"

#include <utility>

#include "engine/serve/engine_process.h"
#include "engine/weights/shared_weights.h"

namespace pinion {

Status WeightFiles::Connect(std::vector<ReplicaPlan>& replicas) {
  std::map<int, int> engines;
  for (const ReplicaPlan& replica : replicas) ++engines[replica.copy];
  for (ReplicaPlan& replica : replicas) {
    const int count = engines.at(replica.copy);
    if (count == 1) continue;
    if (!files_.contains(replica.copy)) {
      PINION_ASSIGN(MemoryFile file, SharedWeights::MakeFile());
      files_.emplace(replica.copy, std::move(file));
    }
    replica.options.weight_copy = {kEngineWeightsFd, replica.copy, count};
  }
  return {};
}

int WeightFiles::FdOf(const ReplicaPlan& replica) const {
  const auto file = files_.find(replica.copy);
  return file == files_.end() ? -1 : file->second.fd();
}

void WeightFiles::Clear() const {
  for (const auto& [copy, file] : files_) SharedWeights::Clear(file);
}

}  // namespace pinion
