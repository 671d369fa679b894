#pragma once

// Shared parts of the benchmarks. Results are named <what>/<isa>/<type>/<sizes>, so that
// --benchmark_filter selects what is compared; probe/* are the limits to compare with.

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstring>

#include "kernels/kernels.h"

namespace pinion::kernels::bench {

// Mapped memory that every benchmark may use, larger than any L3 slice; written once with small
// values (0x3c bytes: 0.0115 as bfloat16 and float32, 1.06 as float16), so that its pages are
// present and no product is subnormal.
inline constexpr size_t kPoolBytes = 256u << 20;

inline std::byte* Pool() {
  static std::byte* const pool = [] {
    void* p = mmap(nullptr, kPoolBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, kPoolBytes, MADV_HUGEPAGE);
    std::memset(p, 0x3c, kPoolBytes);
    return static_cast<std::byte*>(p);
  }();
  return pool;
}

// `per_iteration` per second over all threads. Averaged, because the library sums the threads'
// counters although their iterations are already counted together. Decimal prefixes, unlike
// SetBytesProcessed's.
inline benchmark::Counter Rate(double per_iteration) {
  using benchmark::Counter;
  return {per_iteration, Counter::kIsIterationInvariantRate | Counter::kAvgThreads};
}
inline void ReportBytes(benchmark::State& state, size_t bytes_per_iteration) {
  state.counters["B/s"] = Rate(static_cast<double>(bytes_per_iteration));
}
inline void ReportFlops(benchmark::State& state, double flops_per_iteration) {
  state.counters["FLOP/s"] = Rate(flops_per_iteration);
}

}  // namespace pinion::kernels::bench
