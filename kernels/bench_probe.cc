// The limits: the rate at which a thread reads memory, and the peak of its multipliers.

#include <emmintrin.h>

#include "kernels/bench.h"

namespace pinion::kernels::bench {
namespace {

// Reads the whole pool in order, prefetching 8 KiB ahead, as the GEMM of one row does.
void BM_ReadBandwidth(benchmark::State& state) {
  const std::byte* pool = Pool();
  for (auto _ : state) {
    __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;  // one chain would be bound by latency
    for (size_t i = 0; i < kPoolBytes; i += 64) {
      const auto* p = reinterpret_cast<const __m128i*>(pool + i);
      __builtin_prefetch(pool + i + 8192);
      a = _mm_xor_si128(a, _mm_load_si128(p));
      b = _mm_xor_si128(b, _mm_load_si128(p + 1));
      c = _mm_xor_si128(c, _mm_load_si128(p + 2));
      d = _mm_xor_si128(d, _mm_load_si128(p + 3));
    }
    __m128i sums = _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d));
    benchmark::DoNotOptimize(sums);
  }
  ReportBytes(state, kPoolBytes);
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
