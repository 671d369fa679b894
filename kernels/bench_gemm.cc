// One thread's share of a linear layer: n = k = 2048, M rows. Each iteration takes the next slice
// of a pool that no cache holds, as the layers of a model do. B/s counts the weights (compare with
// probe/read), FLOP/s the multiplications (compare with probe/multiply).

#include <cstdlib>

#include "kernels/bench.h"
#include "kernels/impl/onednn.h"

namespace pinion::kernels::bench {
namespace {

constexpr size_t kK = 2048, kN = 2048;
constexpr size_t kMaxRows = 512;

struct Activations {
  alignas(64) float x[kMaxRows * kK], y[kMaxRows * kN];
};

template <typename Run>
void RunGemm(benchmark::State& state, Dtype weights, Run run) {
  static Activations& buffers = *[] {
    auto* fresh = static_cast<Activations*>(std::aligned_alloc(64, sizeof(Activations)));
    std::memset(static_cast<void*>(fresh), 0x3c, sizeof(Activations));
    return fresh;
  }();
  const auto rows = static_cast<size_t>(state.range(0));
  const size_t slice_bytes = kN / kBlockN * PackedBlockBytes(weights, kK);
  const size_t slices = kPoolBytes / slice_bytes;
  size_t slice = 0;
  const std::byte* pool = Pool();
  for (auto _ : state) {
    const std::byte* w = pool + slice * slice_bytes;
    if (!run(GemmArgs{buffers.x, w, buffers.y, rows, kK, kN / kBlockN, kN})) {
      state.SkipWithError("no such primitive");
      break;
    }
    slice = (slice + 1) % slices;
  }
  ReportBytes(state, slice_bytes);
  ReportFlops(state, 2.0 * static_cast<double>(rows) * kN * kK);
}

void BM_Gemm(benchmark::State& state, Isa isa, Dtype weights) {
  const Table& table = TableFor(isa);
  const auto gemm = weights == Dtype::kF32    ? table.gemm_f32
                    : weights == Dtype::kBf16 ? table.gemm_bf16
                                              : table.gemm_f16;
  RunGemm(state, weights, [gemm](const GemmArgs& args) {
    gemm(args);
    return true;
  });
}

// Capped with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (and so on) by whoever runs it.
void BM_OneDnn(benchmark::State& state, Dtype weights) {
  RunGemm(state, weights,
          [weights](const GemmArgs& args) { return impl::OneDnnGemm(weights, args); });
}

void AddRows(benchmark::internal::Benchmark* b) {
  for (int rows : {1, 4, 8, 16, 32, 64, 128, 256, 512}) b->Arg(rows);
}

const bool registered = [] {
  for (Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    for (Isa isa : UsableIsas()) {
      if (isa == Isa::kAmx) continue;  // its GEMMs are oneDNN's
      const std::string name = std::string("gemm/") + Name(isa) + "/" + Name(dtype);
      AddRows(benchmark::RegisterBenchmark(name.c_str(), BM_Gemm, isa, dtype));
    }
    if (dtype == Dtype::kF16) continue;  // oneDNN has none
    const std::string name = std::string("gemm/onednn/") + Name(dtype);
    AddRows(benchmark::RegisterBenchmark(name.c_str(), BM_OneDnn, dtype));
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
