// The dense MLP.

#include <algorithm>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"
#include "engine/decoder/mlp_tile.h"

namespace pinion {
namespace {

using kernels::kBlockN;

// The input projection goes through tiles of some rows and blocks, which are activated while they
// are in cache: the wide float32 result never reaches memory.
struct TileShape {
  size_t rows, blocks;  // blocks: a multiple of `unit`
  size_t unit;          // blocks of a tile that make one of the result: one (plain) or two (gated)
};

// Kernels that want several blocks per call get them if the tile has room.
TileShape ShapeOf(const kernels::ProductCut& cut, size_t unit) {
  const size_t rows = kMlpTileFloats / (cut.blocks * kBlockN);
  if (cut.blocks <= unit || cut.blocks > kMlpTileBlocks) return {kMlpTileRows, unit, unit};
  return {std::min({kMlpTileRows, rows, cut.rows}), cut.blocks / unit * unit, unit};
}

// Multiplies the gates of a tile's product, after adding their biases and those beside them.
void ScaleGates(const ForwardPass& pass, const float* bias, const TileShape& shape, float* tile) {
  const size_t stride = shape.blocks * kBlockN;
  for (size_t i = 0; i < shape.rows; ++i) {
    float* row = tile + i * stride;
    if (bias) pass.table.add(row, bias, stride);
    for (size_t at = 0; at < shape.blocks; at += shape.unit)
      pass.table.scale(row + at * kBlockN, pass.spec.mlp_gate_multiplier, kBlockN);
  }
}

void RunTile(const ForwardPass& pass, const LayerWeights& layer, const PreparedRows& x,
             std::byte* mlp, const TileShape& shape, size_t block, size_t row) {
  const PackedMatrix& matrix = layer.mlp_in;
  const size_t element = kernels::SizeOf(pass.activation), stride = shape.blocks * kBlockN;
  // Blocks whose outputs lie side by side: all of a plain input, one of a gated one.
  const size_t together = pass.spec.gated ? shape.unit : shape.blocks;
  float* tile = pass.scratch.mlp_tile;
  Multiply(pass, matrix, x, row, shape.rows, block, shape.blocks, tile, stride);
  const float* bias = layer.mlp_in_bias ? layer.mlp_in_bias + block * kBlockN : nullptr;
  if (pass.spec.gated && pass.spec.mlp_gate_multiplier != 1) {
    ScaleGates(pass, bias, shape, tile);
    bias = nullptr;
  }
  for (size_t at = 0; at < shape.blocks; at += together) {
    const size_t column = (block + at) / shape.unit * kBlockN;
    const float* x_of = tile + at * kBlockN;
    const float* bias_of = bias ? bias + at * kBlockN : nullptr;
    pass.table.activate_rows({.activation = pass.spec.activation,
                              .x = x_of,
                              .up = pass.spec.gated ? x_of + kBlockN : nullptr,
                              .rows = shape.rows,
                              .n = std::min(together / shape.unit * kBlockN, layer.down.k - column),
                              .stride = stride,
                              .bias = bias_of,
                              .up_bias = bias_of && pass.spec.gated ? bias_of + kBlockN : nullptr,
                              .dst = mlp + (row * layer.down.k_padded() + column) * element,
                              .dst_type = pass.activation,
                              .dst_stride = layer.down.k_padded()});
  }
}

}  // namespace

void RunMlpIn(const ForwardPass& pass, const LayerWeights& layer, std::byte* mlp) {
  const TraceSpan span("mlp_in");
  const size_t unit = pass.spec.gated ? 2 : 1;
  const PreparedRows x = Prepare(pass, layer.mlp_in, pass.w.normed, pass.rows);
  const kernels::ProductCut cut = CutOf(pass, layer.mlp_in);
  const TileShape most = ShapeOf(cut, unit);
  const auto run = [&](size_t row, size_t rows, size_t begin, size_t end) {
    for (size_t block = begin; block < end; block += most.blocks) {
      for (size_t first = row; first < row + rows; first += most.rows)
        RunTile(pass, layer, x, mlp,
                {std::min(most.rows, row + rows - first), std::min(most.blocks, end - block), unit},
                block, first);
    }
  };
  // The cut in rows is that of calls with as many blocks.
  const size_t rows = most.blocks >= cut.blocks ? cut.rows : cut.rows_of_few;
  ShareProducts(pass, layer.mlp_in, rows, most.blocks, unit, run);
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
