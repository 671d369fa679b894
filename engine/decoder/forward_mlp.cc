// The dense MLP.

#include <algorithm>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

using kernels::kBlockN;

// The input projection goes through a tile of one (plain) or two (gated) blocks, which is
// activated while it is in cache: the wide float32 result never reaches memory.
void RunTile(const ForwardPass& pass, const LayerWeights& layer, const PreparedRows& x,
             std::byte* mlp, size_t block, size_t unit, size_t row, size_t rows) {
  const PackedMatrix& matrix = layer.mlp_in;
  const size_t element = kernels::SizeOf(pass.activation), stride = unit * kBlockN;
  const auto activation = pass.spec.activation;
  float* tile = pass.scratch.mlp_tile;
  Multiply(pass, matrix, x, row, rows, block, unit, tile, stride);
  const size_t column = block / unit * kBlockN;
  const size_t live = std::min(kBlockN, layer.down.k - column);
  for (size_t i = 0; i < rows; ++i) {
    float* src = tile + i * stride;
    if (layer.mlp_in_bias) pass.table.add(src, layer.mlp_in_bias + block * kBlockN, stride);
    std::byte* dst = mlp + ((row + i) * layer.down.k_padded() + column) * element;
    if (pass.spec.gated && pass.spec.mlp_gate_multiplier != 1)
      pass.table.scale(src, pass.spec.mlp_gate_multiplier, live);
    if (pass.spec.gated)
      pass.table.activate_gated(dst, pass.activation, activation, src, src + kBlockN, live);
    else
      pass.table.activate(dst, pass.activation, activation, src, live);
  }
}

}  // namespace

void RunMlpIn(const ForwardPass& pass, const LayerWeights& layer, std::byte* mlp) {
  const TraceSpan span("mlp_in");
  const size_t unit = pass.spec.gated ? 2 : 1;
  const PreparedRows x = Prepare(pass, layer.mlp_in, pass.w.normed, pass.rows);
  const auto run = [&](size_t row, size_t rows, size_t begin, size_t end) {
    for (size_t block = begin; block < end; block += unit)
      for (size_t tile = row; tile < row + rows; tile += kMlpTileRows)
        RunTile(pass, layer, x, mlp, block, unit, tile, std::min(kMlpTileRows, row + rows - tile));
  };
  // Tiles of one or two blocks: the cut in rows is that of calls with few blocks.
  ShareProducts(pass, layer.mlp_in, CutOf(pass, layer.mlp_in).rows_of_few, 1, unit, run);
}

void RunMlp(const ForwardPass& pass, size_t layer) {
  const LayerWeights& weights = pass.weights.layers[layer];
  if (pass.spec.layer_specs[layer].gate_cut)
    RunLargestGates(pass, layer);
  else
    RunMlpIn(pass, weights, pass.w.mlp);
  Project(pass, "down", weights.down, pass.w.mlp, pass.w.mlp_partial, pass.w.hidden_stride,
          PhaseScope::kRanks);
}

}  // namespace pinion
