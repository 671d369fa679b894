#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace pinion {

// The free blocks of a pool, as runs of consecutive numbers. Not thread-safe.
class FreeRuns {
 public:
  struct Run {
    int32_t begin = 0, end = 0;
    size_t size() const { return static_cast<size_t>(end - begin); }
  };

  explicit FreeRuns(size_t blocks);  // initially all of [0, blocks) are free

  size_t size() const { return size_; }  // blocks
  bool empty() const { return size_ == 0; }
  bool Holds(int32_t block) const;

  void Add(int32_t block);   // requires that it is not free
  void Take(int32_t block);  // requires that it is free

  // The lowest run of at least `blocks` blocks, else the longest. Requires a free block. Linear in
  // the number of runs: some hundreds if some hundred sequences are cached.
  Run Find(size_t blocks) const;

 private:
  using Runs = std::map<int32_t, int32_t>;  // begin -> end, neither empty nor adjacent
  Runs::const_iterator Around(int32_t block) const;

  Runs runs_;
  size_t size_;
};

}  // namespace pinion
