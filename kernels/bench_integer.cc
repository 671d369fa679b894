// Products with integer weights, layer by layer (bench_layers.h): integer/<path>/<kind>/<layer>.
// The peak is that of int8 multiply-adds, for 4 bits as well as for 8. Weights are prefetched as an
// engine on the path does it.

#include <vector>

#include "kernels/bench_layers.h"
#include "kernels/integer_prefetch.h"

namespace pinion::kernels::bench {
namespace {

struct Kind {
  const char* name;
  int bits;
  size_t group;  // 0: whole rows
  int lowest;
  bool has_offsets;
  ScaleType scale_type = ScaleType::kF16;
  bool outliers = false;  // every row has as many as are kept apart
  IntLayout LayoutOf(size_t k) const {
    return {bits,        k,          group > 0 ? group : k,         lowest,
            has_offsets, scale_type, outliers ? MostOutliers(k) : 0};
  }
};
constexpr Kind kKinds[] = {{"w8a8", 8, 0, -128, false},
                           {"q8_0", 8, 32, -128, false},
                           {"int4-g32", 4, 32, -8, false},
                           {"mxfp4", 4, 32, -12, false, ScaleType::kPower},
                           {"nvfp4", 4, 16, -12, false, ScaleType::kE4m3},
                           {"int4-g128", 4, 128, -8, false},
                           {"int4-g128-zeros", 4, 128, 0, true},
                           {"int4-g32-outliers", 4, 32, -8, false, ScaleType::kF16, true},
                           {"int4-g128-outliers", 4, 128, -8, false, ScaleType::kF16, true}};

// Rounded rows of activations; their values do not matter, only how many stand out.
const std::byte* RoundedRows(const IntTable& table, const IntLayout& layout, size_t rows) {
  std::vector<float> floats(layout.k, 1);
  for (size_t i = 0; i < layout.outliers; ++i) floats[i * layout.k / layout.outliers] = 100;
  std::byte* x = ScratchOf<0>(kMaxRows * 2 * kMaxWidth).get();
  for (size_t row = 0; row < rows; ++row)
    table.round(layout, {x + row * layout.row_bytes(), floats.data(), Dtype::kF32, {}});
  return x;
}

void BM_Integer(benchmark::State& state, const Layer& layer, const Kind& kind, Isa isa) {
  const IntTable& table = IntTableFor(isa);
  const IntLayout layout = kind.LayoutOf(layer.k);
  const size_t blocks = layer.n / kBlockN;
  const auto rows = static_cast<size_t>(state.range(0));
  const std::byte* x = RoundedRows(table, layout, rows);
  auto* y = reinterpret_cast<float*>(ScratchOf<1>(kMaxRows * kMaxWidth * sizeof(float)).get());
  const Prefetch prefetch = MeasureIntPrefetch(isa, {layout}).For(layout, rows);
  RunLayer(
      state, layer, blocks * layout.block_bytes(),
      [&](const std::byte* w) {
        table.gemm(layout, {x, w, y, rows, blocks, layer.n, prefetch});
      },
      [&] { return BestRate([&] { return Int8Probe(isa)(kProbeRounds); }); }, ProbesFor(isa));
}

const bool registered = [] {
  for (const Isa isa : UsableIsas()) {
    if (Int8Probe(isa) == nullptr) continue;
    for (const Kind& kind : kKinds) {
      RegisterLayers(std::string("integer/") + Name(isa) + "/" + kind.name,
                     [isa, &kind](benchmark::State& state, const Layer& layer) {
                       BM_Integer(state, layer, kind, isa);
                     });
    }
  }
  return true;
}();

}  // namespace
}  // namespace pinion::kernels::bench
