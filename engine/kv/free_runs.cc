#include "engine/kv/free_runs.h"

#include <iterator>

#include "engine/base/check.h"

namespace pinion {

FreeRuns::FreeRuns(size_t blocks) : size_(blocks) {
  if (blocks > 0) runs_.emplace(0, static_cast<int32_t>(blocks));
}

// The run that contains a block; end() if the block is not free.
FreeRuns::Runs::const_iterator FreeRuns::Around(int32_t block) const {
  const auto behind = runs_.upper_bound(block);
  if (behind == runs_.begin()) return runs_.end();
  const auto run = std::prev(behind);
  return block < run->second ? run : runs_.end();
}

bool FreeRuns::Holds(int32_t block) const { return Around(block) != runs_.end(); }

void FreeRuns::Add(int32_t block) {
  CHECK(!Holds(block)) << "block " << block << " is free already";
  int32_t begin = block, end = block + 1;
  const auto behind = runs_.find(end);
  if (behind != runs_.end()) {
    end = behind->second;
    runs_.erase(behind);
  }
  const auto before = runs_.lower_bound(block);
  if (before != runs_.begin() && std::prev(before)->second == block)
    begin = std::prev(before)->first;
  runs_[begin] = end;
  ++size_;
}

void FreeRuns::Take(int32_t block) {
  const auto run = Around(block);
  CHECK(run != runs_.end()) << "block " << block << " is not free";
  const auto [begin, end] = *run;
  runs_.erase(run);
  if (begin < block) runs_.emplace(begin, block);
  if (block + 1 < end) runs_.emplace(block + 1, end);
  --size_;
}

FreeRuns::Run FreeRuns::Find(size_t blocks) const {
  Run longest;
  for (const auto& [begin, end] : runs_) {
    const Run run{begin, end};
    if (run.size() > longest.size()) longest = run;
    if (longest.size() >= blocks) break;
  }
  return longest;
}

}  // namespace pinion
