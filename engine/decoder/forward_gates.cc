// MLPs that keep a token's largest gates alone (LayerSpec::gate_cut). The choice depends on all
// gates of the token, so they are written to memory before they are activated.

#include <algorithm>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"
#include "engine/spec/attention_spec.h"

namespace pinion {
namespace {

using kernels::kBlockN;

// One rank's gates of a layer. Blocks of 64 gates are counted over the whole model: sums over a
// token's gates go over the sums of its blocks, in their order, so that every rank gets the same.
struct Gates {
  Gates(const ForwardPass& pass, size_t layer)
      : pass(pass),
        range(pass.weights.shard.Intermediate(layer)),
        blocks((range.size() + kBlockN - 1) / kBlockN),
        first(range.begin / kBlockN),
        all((MlpWidth(pass.spec, layer) + kBlockN - 1) / kBlockN),
        width(static_cast<float>(MlpWidth(pass.spec, layer))),
        cut(*pass.spec.layer_specs[layer].gate_cut),
        sums(pass.spec) {}

  // A block's gates, and behind them what they multiply.
  float* At(size_t row, size_t block) const {
    return pass.w.gates + row * pass.w.gates_stride + 2 * block * kBlockN;
  }
  size_t Live(size_t block) const { return std::min(kBlockN, range.size() - block * kBlockN); }

  const ForwardPass& pass;
  Range range;
  size_t blocks, first, all;  // of this rank; before them; of all ranks
  float width, cut;
  RowSums sums;
};

// Writes the sum, and the sum of squares, of each of the rank's blocks. Blocks of no rank of this
// process are 0 here, since processes' sums are added up.
void MeasureRow(const Gates& gates, size_t row) {
  const ForwardPass& pass = gates.pass;
  RankExchange& exchange = pass.model.exchange;
  float* sums = exchange.own_row_sums() + row * gates.sums.stride + gates.sums.gates;
  for (size_t block = 0; block < gates.blocks; ++block) {
    const float* gate = gates.At(row, block);
    float sum = 0;
    for (size_t i = 0; i < gates.Live(block); ++i) sum += gate[i];
    sums[2 * (gates.first + block)] = sum;
    sums[2 * (gates.first + block) + 1] = pass.table.sum_squares(gate, gates.Live(block));
  }
}

void ClearOthers(const ForwardPass& pass, const Gates& gates, size_t layer, size_t row) {
  RankExchange& exchange = pass.model.exchange;
  if (!exchange.spread() || pass.worker.rank != 0) return;
  float* sums = exchange.own_row_sums() + row * gates.sums.stride + gates.sums.gates;
  const size_t first = exchange.first_rank(), last = first + pass.model.ranks.size() - 1;
  // Rounded up, because an empty part begins at the end of the last block, which may be narrower
  // than the others: nobody here computes that block.
  const size_t begin = (exchange.shard(first).Intermediate(layer).begin + kBlockN - 1) / kBlockN;
  const size_t end = (exchange.shard(last).Intermediate(layer).end + kBlockN - 1) / kBlockN;
  std::fill(sums, sums + 2 * begin, 0.0f);
  std::fill(sums + 2 * std::max(begin, end), sums + 2 * gates.all, 0.0f);
}

// The threshold of a row's gates: the mean and so many deviations.
float Least(const Gates& gates, size_t row) {
  const float* sums =
      gates.pass.model.exchange.row_sums() + row * gates.sums.stride + gates.sums.gates;
  float sum = 0, squares = 0;
  for (size_t block = 0; block < gates.all; ++block) {
    sum += sums[2 * block];
    squares += sums[2 * block + 1];
  }
  const float mean = sum / gates.width;
  return mean + gates.cut * std::sqrt(std::max(0.0f, squares / gates.width - mean * mean));
}

void ActivateRow(const Gates& gates, size_t row, size_t row_bytes) {
  const ForwardPass& pass = gates.pass;
  const float least = Least(gates, row);
  std::byte* dst = pass.w.mlp + row * row_bytes;
  for (size_t block = 0; block < gates.blocks; ++block) {
    float* gate = gates.At(row, block);
    for (size_t i = 0; i < gates.Live(block); ++i) gate[i] = std::max(0.0f, gate[i] - least);
    pass.table.activate_gated(dst + block * kBlockN * kernels::SizeOf(pass.activation),
                              pass.activation, pass.spec.activation, gate, gate + kBlockN,
                              gates.Live(block));
  }
}

}  // namespace

void RunLargestGates(const ForwardPass& pass, size_t layer) {
  const LayerWeights& weights = pass.weights.layers[layer];
  const Gates gates(pass, layer);
  Project(pass, "mlp_in", weights.mlp_in, pass.w.normed, pass.w.gates, pass.w.gates_stride);
  const auto measure = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      MeasureRow(gates, row);
      ClearOthers(pass, gates, layer, row);
    }
  };
  pass.worker.Share(pass.rows, measure, PhaseScope::kRanks);
  Fetch(pass, [&](RankExchange& exchange) { exchange.FetchRowSums(pass.rows); });
  const size_t row_bytes = weights.down.k_padded() * kernels::SizeOf(pass.activation);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) ActivateRow(gates, row, row_bytes);
  });
}

}  // namespace pinion
