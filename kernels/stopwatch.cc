#include "kernels/impl/stopwatch.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "kernels/impl/cpuid.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kPage = 4096;
constexpr int kSamples = 5;
// A way that is this many times slower than the fastest after two samples is not timed again.
constexpr double kHopeless = 1.5;
// Runs of at least this many seconds vary little, so two samples are enough for them.
constexpr double kLong = 100e-6;

bool HasUnorderedFlush() {
  static const bool has = (Cpuid(7, 0).ebx >> 23 & 1) != 0;  // clflushopt
  return has;
}

// Lines at once: clflush waits for the line before, and a start flushes a megabyte some 300 times.
[[gnu::target("clflushopt")]] void FlushUnordered(std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) _mm_clflushopt(data + i);
}

// Flushes first, so that weights come from memory, as they do in each step of a model.
double SecondsOf(const std::function<void(size_t)>& run, size_t i, TimedBuffer& weights) {
  weights.Flush();
  const double start = ThreadSeconds();
  run(i);
  return ThreadSeconds() - start;
}

}  // namespace

double ThreadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

TimedBuffer::TimedBuffer(size_t bytes)
    : bytes_((bytes + kPage - 1) / kPage * kPage),
      data_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_))) {
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0x3c, bytes_);
}

void TimedBuffer::Flush() {
  if (HasUnorderedFlush()) {
    FlushUnordered(data_.get(), bytes_);
  } else {
    for (size_t i = 0; i < bytes_; i += 64) _mm_clflush(data_.get() + i);
  }
  _mm_mfence();  // waits for either
}

void TimedBuffer::Free::operator()(std::byte* p) const { std::free(p); }

size_t FastestOf(size_t count, const std::function<void(size_t)>& run, TimedBuffer& weights,
                 const std::function<double(size_t, size_t)>& margin) {
  std::vector<double> seconds(count, 1e9);
  for (int sample = 0; sample < kSamples; ++sample) {
    const double fastest = *std::min_element(seconds.begin(), seconds.end());
    for (size_t i = 0; i < count; ++i) {
      if (sample >= 2 && seconds[i] > std::min(kHopeless * fastest, kLong)) continue;
      if (sample == 0) run(i);  // untimed: faults pages in, makes oneDNN's primitives
      seconds[i] = std::min(seconds[i], SecondsOf(run, i, weights));
    }
  }
  size_t best = 0;
  for (size_t i = 1; i < count; ++i)
    if (seconds[i] * margin(i, best) < seconds[best]) best = i;
  return best;
}

}  // namespace pinion::kernels::impl
