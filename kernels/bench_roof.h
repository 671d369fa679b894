#pragma once

// The limits of the calling thread: rates of the probes, by which work is divided.

#include <time.h>

#include <algorithm>

#include "kernels/bench.h"
#include "kernels/probe.h"

namespace pinion::kernels::bench {

// This thread's CPU time: on a shared machine other processes delay the kernel and the probe, but
// not by the same share.
inline double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Work per second, the best of three samples of 4 ms. bite() returns how much work it did.
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

// Bytes per second that this thread reads from `memory` while the other threads do the same.
inline double ReadRate(const Probes& probes, const std::byte* memory, size_t bytes) {
  size_t at = 0;
  return BestRate([&] {
    constexpr size_t kBite = size_t{1} << 20;
    at = at + 2 * kBite > bytes ? 0 : at + kBite;
    probes.stream(memory + at, kBite);
    return kBite;
  });
}

// Rounds of a probe between two looks at the clock, which take as long as a hundred rounds.
inline constexpr size_t kProbeRounds = 20000;

// Operations per second (a multiply-add counts as two) of the instruction for weights, keys or
// values of this type.
inline double PeakOf(Isa isa, Dtype weights) {
  const Probes& probes = ProbesFor(isa);
  const double f32 = BestRate([&] { return probes.multiply_f32(kProbeRounds); });
  if (weights != Dtype::kBf16 || probes.multiply_bf16 == nullptr) return f32;
  return std::max(f32, BestRate([&] { return probes.multiply_bf16(kProbeRounds); }));
}

}  // namespace pinion::kernels::bench
