#include "engine/model/cost.h"

#include "engine/model/shard.h"
#include "engine/model/weight_layout.h"
#include "engine/model/weights.h"

namespace pinion {
namespace {

// Elements of the projections of one layer, before padding.
uint64_t LayerElements(const DecoderSpec& spec) {
  const auto hidden = static_cast<uint64_t>(spec.hidden);
  const auto middle = static_cast<uint64_t>(spec.intermediate);
  const auto q = static_cast<uint64_t>(spec.heads) * static_cast<uint64_t>(spec.head_dim);
  const auto kv = static_cast<uint64_t>(spec.kv_heads) * static_cast<uint64_t>(spec.head_dim);
  const uint64_t mlp = spec.gated ? 3 : 2;
  return hidden * (q + 2 * kv) + q * hidden + mlp * hidden * middle;
}

}  // namespace

StepCost& StepCost::operator+=(const StepCost& other) {
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  flops += other.flops;
  return *this;
}

CostModel::CostModel(const DecoderSpec& spec, kernels::Dtype dtype, int ranks) {
  const auto layers = static_cast<uint64_t>(spec.layers);
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto head_dim = static_cast<uint64_t>(spec.head_dim);
  for (int rank = 0; rank < ranks; ++rank) {
    const Shard shard = MakeShard(spec, ranks, rank);
    const PackedMatrix head = MatrixOf(dtype, shard.vocabulary.size(), hidden,
                                       spec.formats.Find(-1, MatrixRole::kHead), 0);
    head_bytes_ += head.size_bytes();
    layer_weight_bytes_ += ShardWeightBytes(spec, dtype, ranks, rank) - head.size_bytes();
    kv_bytes_per_token_ += 2 * layers * shard.kv_heads.size() * head_dim * kernels::SizeOf(dtype);
  }
  flops_per_row_ = 2 * layers * LayerElements(spec);
  flops_per_logit_row_ = 2 * static_cast<uint64_t>(spec.vocabulary) * hidden;
  // A product with the key and one with the value.
  flops_per_seen_token_ = 2 * 2 * layers * static_cast<uint64_t>(spec.heads) * head_dim;
}

StepCost CostModel::Weights(bool with_head) const {
  StepCost cost;
  cost.weight_bytes = layer_weight_bytes_ + (with_head ? head_bytes_ : 0);
  return cost;
}

StepCost CostModel::Rows(size_t first_position, size_t rows, size_t logit_rows) const {
  StepCost cost;
  // Row i sees first_position + i + 1 tokens; all rows together read each token once.
  const uint64_t seen = rows * first_position + rows * (rows + 1) / 2;
  cost.kv_bytes = (first_position + rows) * kv_bytes_per_token_;
  cost.flops =
      rows * flops_per_row_ + logit_rows * flops_per_logit_row_ + seen * flops_per_seen_token_;
  return cost;
}

}  // namespace pinion
