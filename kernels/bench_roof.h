#pragma once

// What would have been possible on the calling thread: rates of the probes, to divide work by.

#include <time.h>

#include <algorithm>

#include "kernels/bench.h"
#include "kernels/probe.h"

namespace pinion::kernels::bench {

// This thread's CPU time: what else runs on a shared machine delays kernel and probe alike, but
// never for the same part.
inline double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Work per second, the best of three samples of 4 ms. bite() returns how much it did.
template <typename Bite>
double BestRate(Bite bite) {
  double best = 0;
  for (int sample = 0; sample < 3; ++sample) {
    double done = 0, seconds = 0;
    const double start = Now();
    do {
      done += static_cast<double>(bite());
      seconds = Now() - start;
    } while (seconds < 0.004);
    best = std::max(best, done / seconds);
  }
  return best;
}

// Bytes a second that this thread reads from `memory`, whatever the others do meanwhile.
inline double ReadRate(const Probes& probes, const std::byte* memory, size_t bytes) {
  size_t at = 0;
  return BestRate([&] {
    constexpr size_t kBite = size_t{1} << 20;
    at = at + 2 * kBite > bytes ? 0 : at + kBite;
    probes.stream(memory + at, kBite);
    return kBite;
  });
}

// Multiply-adds a second, times two, of what multiplies weights, keys or values of this type.
inline double PeakOf(Isa isa, Dtype weights) {
  const Probes& probes = ProbesFor(isa);
  const double f32 = BestRate([&] { return probes.multiply_f32(2000); });
  if (weights != Dtype::kBf16 || probes.multiply_bf16 == nullptr) return f32;
  return std::max(f32, BestRate([&] { return probes.multiply_bf16(2000); }));
}

}  // namespace pinion::kernels::bench
