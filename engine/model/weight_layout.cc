#include "engine/model/weight_layout.h"

namespace pinion {
namespace {

using kernels::Dtype;

// Hands out 64-byte aligned pieces of one mapping. With a null base it only counts, so that one
// function lays the weights out for both purposes.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}
  size_t used() const { return used_; }

  float* Vector(size_t n) { return reinterpret_cast<float*>(Take(n * sizeof(float))); }
  float* VectorIf(bool wanted, size_t n) { return wanted ? Vector(n) : nullptr; }
  PackedMatrix Matrix(Dtype dtype, size_t outputs, size_t k) {
    PackedMatrix matrix{nullptr, dtype, outputs, k};
    if (k == 0) matrix.outputs = 0;
    matrix.data = Take(matrix.size_bytes());
    return matrix;
  }

 private:
  std::byte* Take(size_t bytes) {
    const size_t at = kernels::RoundUp(used_, 64);
    used_ = at + bytes;
    return base_ ? base_ + at : nullptr;
  }
  std::byte* base_;
  size_t used_ = 0;
};

NormWeights LayOutNorm(const DecoderSpec& spec, const std::string& name, Arena& arena) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  NormWeights norm;
  norm.weight = arena.VectorIf(!name.empty(), hidden);
  norm.bias = arena.VectorIf(!name.empty() && spec.norm_bias, hidden);
  return norm;
}

void LayOutAttention(const DecoderSpec& spec, const Shard& shard, Dtype dtype, Arena& arena,
                     LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const size_t q = shard.q_heads.size() * head_dim, kv = shard.kv_heads.size() * head_dim;
  const bool whole = spec.qk_norm == QkNorm::kWhole;
  layer.q_norm = arena.VectorIf(spec.qk_norm != QkNorm::kNone, whole ? q : head_dim);
  layer.k_norm = arena.VectorIf(spec.qk_norm != QkNorm::kNone, whole ? kv : head_dim);
  layer.qkv = arena.Matrix(dtype, q + 2 * kv, hidden);
  layer.o = arena.Matrix(dtype, hidden, q);
  layer.qkv_bias = arena.VectorIf(spec.qkv_bias, layer.qkv.outputs);
  layer.o_bias = arena.VectorIf(spec.o_bias, hidden);
}

void LayOutMlp(const DecoderSpec& spec, const Shard& shard, Dtype dtype, Arena& arena,
               LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const size_t middle = shard.intermediate.size();
  const size_t outputs = spec.gated ? 2 * kernels::RoundUp(middle, kernels::kBlockN) : middle;
  layer.mlp_in = arena.Matrix(dtype, outputs, hidden);
  layer.down = arena.Matrix(dtype, hidden, middle);
  layer.mlp_in_bias =
      arena.VectorIf(spec.mlp_bias, kernels::RoundUp(layer.mlp_in.outputs, kernels::kBlockN));
  layer.down_bias = arena.VectorIf(spec.mlp_bias, hidden);
}

LayerWeights LayOutLayer(const DecoderSpec& spec, const Shard& shard, Dtype dtype, Arena& arena) {
  LayerWeights layer;
  layer.attention_norm = LayOutNorm(spec, spec.names.attention_norm, arena);
  LayOutAttention(spec, shard, dtype, arena, layer);
  layer.attention_post_norm = LayOutNorm(spec, spec.names.attention_post_norm, arena);
  layer.mlp_norm = LayOutNorm(spec, spec.names.mlp_norm, arena);
  LayOutMlp(spec, shard, dtype, arena, layer);
  layer.mlp_post_norm = LayOutNorm(spec, spec.names.mlp_post_norm, arena);
  return layer;
}

}  // namespace

size_t LayOutWeights(const DecoderSpec& spec, Dtype dtype, std::byte* base, RankWeights& weights) {
  Arena arena(base);
  weights.layers.clear();
  for (int i = 0; i < spec.layers; ++i)
    weights.layers.push_back(LayOutLayer(spec, weights.shard, dtype, arena));
  weights.final_norm = LayOutNorm(spec, spec.names.final_norm, arena);
  const size_t vocabulary = weights.shard.vocabulary.size();
  weights.head = arena.Matrix(dtype, vocabulary, static_cast<size_t>(spec.hidden));
  return arena.used();
}

}  // namespace pinion
