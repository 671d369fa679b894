#pragma once

// Kernels timed against each other on the calling thread.

#include <cstddef>
#include <functional>
#include <memory>

namespace pinion::kernels::impl {

// CPU time of this thread: whatever else runs here does not count.
double ThreadSeconds();

// Operands of a product to be timed. Throws std::bad_alloc.
class TimedBuffer {
 public:
  // Filled with small numbers of any type, so that no product is subnormal.
  explicit TimedBuffer(size_t bytes);
  std::byte* data() { return data_.get(); }
  void Flush();  // out of all caches

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// Which of `count` ways is the fastest by the best of some samples each.
//   run     one run of a way; timed
//   margin  how many times as fast as `best` way `i` must be to take its place; `best` comes first
size_t FastestOf(size_t count, const std::function<void(size_t i)>& run, TimedBuffer& weights,
                 const std::function<double(size_t i, size_t best)>& margin);

// How much faster a way to the same bits must be than those before it: what samples differ by.
constexpr double kSameBitsMargin = 1.04;

}  // namespace pinion::kernels::impl
