// The bounds: what one thread reads from memory, and what its multipliers do from registers.

#include <emmintrin.h>

#include <vector>

#include "kernels/bench.h"

namespace pinion::kernels::bench {
namespace {

// Reads the whole pool in order, asking 8 KiB ahead, as the GEMM of one row does.
void BM_ReadBandwidth(benchmark::State& state) {
  const std::byte* pool = Pool();
  for (auto _ : state) {
    __m128i sums[4] = {};
    for (size_t i = 0; i < kPoolBytes; i += 64) {
      __builtin_prefetch(pool + i + 8192, 0, 2);
      for (size_t j = 0; j < 4; ++j) {
        const auto* p = reinterpret_cast<const __m128i*>(pool + i + j * 16);
        sums[j] = _mm_xor_si128(sums[j], _mm_load_si128(p));
      }
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kPoolBytes));
}
BENCHMARK(BM_ReadBandwidth)->Name("probe/read")->UseRealTime()->ThreadRange(1, 2);

// The table's own multiply-add at its best: one register tile, operands in L1.
void BM_Multiply(benchmark::State& state, Isa isa, Dtype dtype) {
  constexpr size_t kRows = 6, kK = 512;
  const Table& table = TableFor(isa);
  alignas(64) static float y[kRows * kBlockN];
  const GemmArgs args{Pool() + (1 << 20), Pool(), y, kRows, kK, 1, kBlockN};
  const auto gemm = dtype == Dtype::kF32 ? table.gemm_f32 : table.gemm_bf16;
  for (auto _ : state) gemm(args);
  ReportFlops(state, 2.0 * kRows * kK * kBlockN);
}

const bool registered = [] {
  for (Isa isa : UsableIsas()) {
    for (Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      const std::string name = std::string("probe/multiply/") + Name(isa) + "/" + Name(dtype);
      benchmark::RegisterBenchmark(name.c_str(), BM_Multiply, isa, dtype);
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
