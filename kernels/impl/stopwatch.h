#pragma once

// Times kernels against each other on the calling thread.

#include <cstddef>
#include <functional>
#include <memory>

namespace pinion::kernels::impl {

// CPU time of this thread, so that other processes on a shared machine do not count.
double ThreadSeconds();

// An operand of a product to be timed. Throws std::bad_alloc.
class TimedBuffer {
 public:
  // Filled with bytes that are small normal numbers in every type: subnormals are slow on some
  // CPUs.
  explicit TimedBuffer(size_t bytes);
  std::byte* data() { return data_.get(); }
  void Flush();  // evicts it from all caches

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// The fastest of `count` ways, by the best of some samples of each.
//   run     one run of a way; timed
//   margin  how many times as fast as the earlier way `best` way `i` must be to replace it
size_t FastestOf(size_t count, const std::function<void(size_t i)>& run, TimedBuffer& weights,
                 const std::function<double(size_t i, size_t best)>& margin);

// The margin for a way that computes the same bits as `best`: the spread of samples.
constexpr double kSameBitsMargin = 1.04;

}  // namespace pinion::kernels::impl
