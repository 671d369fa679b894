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
  // `format`: null where it is packed in `dtype`; `column`: the first of the whole matrix's columns
  // that it has.
  PackedMatrix Matrix(Dtype dtype, size_t outputs, size_t k, const IntegerFormat* format = nullptr,
                      size_t column = 0) {
    PackedMatrix matrix = MatrixOf(dtype, outputs, k, format, column);
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

void LayOutAttention(const DecoderSpec& spec, const Shard& shard, Dtype dtype, int index,
                     Arena& arena, LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const size_t q = shard.q_heads.size() * head_dim, kv = shard.kv_heads.size() * head_dim;
  const bool whole = spec.qk_norm == QkNorm::kWhole;
  layer.q_norm = arena.VectorIf(spec.qk_norm != QkNorm::kNone, whole ? q : head_dim);
  layer.k_norm = arena.VectorIf(spec.qk_norm != QkNorm::kNone, whole ? kv : head_dim);
  layer.qkv = arena.Matrix(dtype, q + 2 * kv, hidden, spec.formats.Find(index, MatrixRole::kQkv));
  layer.o = arena.Matrix(dtype, hidden, q, spec.formats.Find(index, MatrixRole::kO),
                         shard.q_heads.begin * head_dim);
  layer.qkv_bias = arena.VectorIf(spec.qkv_bias, layer.qkv.outputs);
  layer.o_bias = arena.VectorIf(spec.o_bias, hidden);
}

void LayOutMlp(const DecoderSpec& spec, const Shard& shard, Dtype dtype, int index, Arena& arena,
               LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const size_t middle = shard.intermediate.size();
  const size_t outputs = spec.gated ? 2 * kernels::RoundUp(middle, kernels::kBlockN) : middle;
  layer.mlp_in = arena.Matrix(dtype, outputs, hidden, spec.formats.Find(index, MatrixRole::kMlpIn));
  layer.down = arena.Matrix(dtype, hidden, middle, spec.formats.Find(index, MatrixRole::kDown),
                            shard.intermediate.begin);
  layer.mlp_in_bias =
      arena.VectorIf(spec.mlp_bias, kernels::RoundUp(layer.mlp_in.outputs, kernels::kBlockN));
  layer.down_bias = arena.VectorIf(spec.mlp_bias, hidden);
}

LayerWeights LayOutLayer(const DecoderSpec& spec, const Shard& shard, Dtype dtype, int index,
                         Arena& arena) {
  LayerWeights layer;
  layer.attention_norm = LayOutNorm(spec, spec.names.attention_norm, arena);
  LayOutAttention(spec, shard, dtype, index, arena, layer);
  layer.attention_post_norm = LayOutNorm(spec, spec.names.attention_post_norm, arena);
  layer.mlp_norm = LayOutNorm(spec, spec.names.mlp_norm, arena);
  LayOutMlp(spec, shard, dtype, index, arena, layer);
  layer.mlp_post_norm = LayOutNorm(spec, spec.names.mlp_post_norm, arena);
  return layer;
}

}  // namespace

PackedMatrix MatrixOf(Dtype dtype, size_t outputs, size_t k, const IntegerFormat* format,
                      size_t column) {
  PackedMatrix matrix{nullptr, dtype, k == 0 ? 0 : outputs, k, {}, {}};
  if (!format || k == 0) return matrix;
  matrix.integers = LayoutOf(*format, column, k);
  matrix.rounding = format->rounding;
  return matrix;
}

size_t LayOutWeights(const DecoderSpec& spec, Dtype dtype, std::byte* base, RankWeights& weights) {
  Arena arena(base);
  weights.layers.clear();
  for (int i = 0; i < spec.layers; ++i)
    weights.layers.push_back(LayOutLayer(spec, weights.shard, dtype, i, arena));
  weights.final_norm = LayOutNorm(spec, spec.names.final_norm, arena);
  const size_t vocabulary = weights.shard.vocabulary.size();
  weights.head = arena.Matrix(dtype, vocabulary, static_cast<size_t>(spec.hidden),
                              spec.formats.Find(-1, MatrixRole::kHead));
  return arena.used();
}

}  // namespace pinion
