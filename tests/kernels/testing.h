#pragma once

// Shared parts of the kernels' tests: buffers with guard pages, random values, conversions.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/kernels.h"

namespace pinion::kernels::testing {

// `count` elements that end exactly at an unmapped page, so that one element too many faults. With
// alignment 64 the end is rounded up (kernels get 64-byte rows); the slack is checked by a canary.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, size_t alignment = alignof(T)) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = RoundUp(count * sizeof(T), alignment);
    slack_ = bytes - count * sizeof(T);
    mapped_ = RoundUp(bytes, page) + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::byte* end = base_ + mapped_ - page;
    mprotect(base_, page, PROT_NONE);
    mprotect(end, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(end - bytes);
    std::memset(static_cast<void*>(data_), kCanary, bytes);
  }
  ~Guarded() {
    const std::byte* slack = reinterpret_cast<const std::byte*>(data_ + count_);
    for (size_t i = 0; i < slack_; ++i) EXPECT_EQ(slack[i], std::byte{kCanary}) << "wrote past";
    munmap(base_, mapped_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data_); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(data_); }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }

 private:
  static constexpr unsigned char kCanary = 0x5a;
  size_t count_, slack_, mapped_;
  std::byte* base_;
  T* data_;
};

// The first `n` numbers of a seed. They are drawn once: tests ask for the same ones again and
// again.
inline std::vector<float> Normal(size_t n, unsigned seed, float scale = 1) {
  struct Drawn {
    std::mt19937 rng;
    std::normal_distribution<float> any;
    std::vector<float> values;
  };
  thread_local std::map<std::pair<unsigned, float>, Drawn> all;
  Drawn& drawn =
      all.try_emplace({seed, scale},
                      Drawn{std::mt19937(seed), std::normal_distribution<float>(0, scale), {}})
          .first->second;
  while (drawn.values.size() < n) drawn.values.push_back(drawn.any(drawn.rng));
  return {drawn.values.begin(), drawn.values.begin() + static_cast<ptrdiff_t>(n)};
}

// One element of any storage type, as float.
inline float Get(const std::byte* p, Dtype dtype, size_t i) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, p + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p + i * 2, 2);
  return dtype == Dtype::kBf16 ? ToFloat(Bf16{bits}) : ToFloat(F16{bits});
}

inline void Set(std::byte* p, Dtype dtype, size_t i, float value) {
  if (dtype == Dtype::kF32) {
    std::memcpy(p + i * 4, &value, 4);
    return;
  }
  const uint16_t bits = dtype == Dtype::kBf16 ? ToBf16(value).bits : ToF16(value).bits;
  std::memcpy(p + i * 2, &bits, 2);
}

inline constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};

// Unit roundoff: the largest relative error of rounding a normal number to the type.
inline double UnitRoundoff(Dtype dtype) {
  return dtype == Dtype::kF32 ? 0x1p-24 : dtype == Dtype::kBf16 ? 0x1p-8 : 0x1p-11;
}

}  // namespace pinion::kernels::testing
