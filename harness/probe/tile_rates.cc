#include "harness/probe/tile_rates.h"

#include "engine/base/strings.h"
#include "kernels/probe.h"

namespace pinion::harness {
namespace {

constexpr size_t kSteps = 2000;  // about 40 us
constexpr int kLastLevel = 3;

uint64_t BytesAt(const std::vector<Cache>& caches, int level) {
  for (const Cache& cache : caches)
    if (cache.level == level) return cache.bytes;
  return 0;
}

}  // namespace

uint64_t TileOperandBytes(const std::vector<Cache>& caches, int level) {
  const uint64_t own = BytesAt(caches, level), before = BytesAt(caches, level - 1);
  const uint64_t bytes = level < kLastLevel ? own / 4 : own > 2 * before ? 2 * before : 0;
  return bytes / kernels::kTileProbeUnit * kernels::kTileProbeUnit;
}

std::vector<InstructionRate> MeasureTiles(Team& team, SamplingPlan sampling, const Arena& arena,
                                          const std::vector<Cache>& caches) {
  std::vector<InstructionRate> rates;
  for (const kernels::TileProbe& probe : kernels::TileProbes()) {
    for (const TileOperands& operands : kTileOperands) {
      const uint64_t a_bytes = TileOperandBytes(caches, operands.a_level);
      const uint64_t b_bytes = TileOperandBytes(caches, operands.b_level);
      if (a_bytes == 0 || b_bytes == 0 || a_bytes + b_bytes > arena.bytes_per_part()) continue;
      const double rate = team.BestRate(sampling, [&](size_t thread) {
        const std::byte* a = arena.part(thread);
        return probe.run(a, a_bytes, a + a_bytes, b_bytes, kSteps);
      });
      rates.push_back({probe.type, StrCat(probe.name, " from ", operands.where),
                       static_cast<int>(team.size()), rate});
    }
  }
  return rates;
}

}  // namespace pinion::harness
