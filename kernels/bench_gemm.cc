// Products with weights in floats, layer by layer (bench_layers.h).

#include <set>

#include "kernels/bench_layers.h"
#include "kernels/gemm_plan.h"

namespace pinion::kernels::bench {
namespace {

// isa: the path that sets the roof.
template <typename Run>
void RunGemm(benchmark::State& state, const Layer& layer, Isa isa, Dtype weights, Run run) {
  const auto rows = static_cast<size_t>(state.range(0));
  const Scratch& x = ScratchOf<0>(kMaxRows * kMaxWidth * sizeof(float));
  const Scratch& y = ScratchOf<1>(kMaxRows * kMaxWidth * sizeof(float));
  const size_t blocks = layer.n / kBlockN;
  RunLayer(
      state, layer, blocks * PackedBlockBytes(weights, layer.k),
      [&](const std::byte* w) {
        run(GemmArgs{x.get(), w, reinterpret_cast<float*>(y.get()), rows, layer.k, blocks,
                     layer.n});
      },
      [&] { return PeakOf(isa, weights); }, ProbesFor(isa));
}

void BM_Kernel(benchmark::State& state, const Layer& layer, Dtype weights,
               const GemmKernel& kernel) {
  RunGemm(state, layer, kernel.isa, weights, [&](GemmArgs args) {
    args.x_stride = KernelStride(TableFor(kernel.isa), kernel, weights, args.rows, args.k_padded);
    RunGemmKernel(kernel, weights, args);
  });
}

// By the kernels that an engine on this path chooses.
void BM_Chosen(benchmark::State& state, const Layer& layer, Dtype weights, Isa isa) {
  const GemmRules rules = MeasureGemmRules(isa, weights);
  UseGemmRules(isa, weights, rules);
  state.SetLabel(Format(rules));
  RunGemm(state, layer, isa, weights, [&](GemmArgs args) {
    args.x_stride = GemmStride(TableFor(isa), weights, args.rows, args.k_padded);
    Gemm(TableFor(isa), weights, args);
  });
}

// Every kernel by its name; oneDNN is capped to the best path, or to ONEDNN_MAX_CPU_ISA.
const bool registered = [] {
  for (Dtype weights : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) {
    std::set<std::string> known;
    for (auto isa = UsableIsas().rbegin(); isa != UsableIsas().rend(); ++isa) {
      for (const GemmKernel& kernel : GemmCandidates(*isa, weights)) {
        if (!known.insert(Name(kernel)).second) continue;
        RegisterLayers("gemm/" + Name(kernel) + "/" + Name(weights),
                       [=](benchmark::State& state, const Layer& layer) {
                         BM_Kernel(state, layer, weights, kernel);
                       });
      }
      RegisterLayers(std::string("gemm/chosen/") + Name(*isa) + "/" + Name(weights),
                     [=, path = *isa](benchmark::State& state, const Layer& layer) {
                       BM_Chosen(state, layer, weights, path);
                     });
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
