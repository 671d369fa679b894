// Products with weights in e4m3, layer by layer (bench_layers.h): e4m3/<path>/<kind>/<layer>. The
// peak is that of bfloat16, whose products these are. Weights are prefetched as an engine on the
// path does it.

#include "kernels/bench_layers.h"
#include "kernels/e4m3.h"
#include "kernels/integer_prefetch.h"

namespace pinion::kernels::bench {
namespace {

struct Kind {
  const char* name;
  size_t group;  // 0: whole rows
};
constexpr Kind kKinds[] = {{"blocks-128", 128}, {"channels", 0}};

void BM_E4m3(benchmark::State& state, const Layer& layer, const Kind& kind, Isa isa) {
  IntLayout layout{8, layer.k, kind.group > 0 ? kind.group : layer.k, 0, false};
  layout.e4m3 = true;
  const size_t blocks = layer.n / kBlockN;
  const auto rows = static_cast<size_t>(state.range(0));
  const Scratch& x = ScratchOf<0>(kMaxRows * kMaxWidth * sizeof(float));
  const Scratch& y = ScratchOf<1>(kMaxRows * kMaxWidth * sizeof(float));
  const Prefetch prefetch = MeasureIntPrefetch(isa, {layout}).For(layout, rows);
  RunLayer(
      state, layer, blocks * layout.block_bytes(),
      [&](const std::byte* w) {
        E4m3TableFor(isa).gemm(layout, {x.get(), Dtype::kBf16, w, reinterpret_cast<float*>(y.get()),
                                        rows, blocks, layer.n, prefetch});
      },
      [&] { return PeakOf(isa, Dtype::kBf16); }, ProbesFor(isa));
}

const bool registered = [] {
  for (const Isa isa : UsableIsas()) {
    if (isa == Isa::kScalar || FloatPath(isa) != isa) continue;
    for (const Kind& kind : kKinds) {
      RegisterLayers(std::string("e4m3/") + Name(isa) + "/" + kind.name,
                     [isa, &kind](benchmark::State& state, const Layer& layer) {
                       BM_E4m3(state, layer, kind, isa);
                     });
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
