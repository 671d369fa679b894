#include "harness/probe/latency.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "engine/base/clock.h"
#include "kernels/probe.h"

namespace pinion::harness {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kLoads = 20'000;  // 0.1 ms in L1, 3 ms in memory

// Line i points to line (a i + c) mod 2^n: one cycle through all of them (Knuth, The Art of
// Computer Programming, volume 2, section 3.2.1.2, theorem A), written in the order of addresses.
void Chain(std::byte* memory, uint64_t lines) {
  constexpr uint64_t kMultiplier = 6364136223846793005, kIncrement = 1442695040888963407;
  for (uint64_t i = 0; i < lines; ++i) {
    const uint64_t next = (kMultiplier * i + kIncrement) & (lines - 1);
    std::byte* to = memory + next * kLineBytes;
    *reinterpret_cast<std::byte**>(memory + i * kLineBytes) = to;
  }
}

}  // namespace

Result<double> LatencyNs(Team& team, SamplingPlan sampling, size_t bytes) {
  const uint64_t lines = std::bit_floor(bytes / kLineBytes);
  PINION_ASSIGN(const Pages pages, Pages::Allocate(lines * kLineBytes));
  double least_ns = std::numeric_limits<double>::infinity();
  team.Run([&](size_t thread, const Worker&) {
    if (thread != 0) return;
    Chain(pages.data(), lines);
    const void* at = kernels::ProbeChain(pages.data(), lines);  // once round: into the cache
    const int64_t begin_ns = NowNs();
    do {
      const int64_t start_ns = NowNs();
      at = kernels::ProbeChain(at, kLoads);
      least_ns = std::min(least_ns, static_cast<double>(NowNs() - start_ns) / kLoads);
    } while (SecondsSince(begin_ns) < sampling.samples * sampling.sample_s);
  });
  return least_ns;
}

}  // namespace pinion::harness
