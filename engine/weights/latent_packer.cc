#include "engine/weights/latent_packer.h"

#include <algorithm>
#include <vector>

#include "engine/spec/tensor_list.h"
#include "engine/weights/weight_packer.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

size_t Size(int n) { return static_cast<size_t>(n); }

// kv_b holds, for each head, nope_dim rows that make keys of a latent, then value_dim rows that
// make values. Queries are multiplied with the former instead (transposed), so that the latent
// itself can be the key: q.(W c) = (W^T q).c, DeepSeek-V2, arXiv:2405.04434, sec. 2.1.2.
class KeyValueUp {
 public:
  KeyValueUp(const DecoderSpec& spec, const TensorSource& source, const Worker& worker,
             const Shard& shard, const TensorInfo& kv_b)
      : latent_(spec.latent), source_(source), worker_(worker), shard_(shard), kv_b_(kv_b) {}

  void PackKeys(const LatentWeights& weights) {
    const auto [begin, end] = BlocksOf(worker_, weights.key_up);
    for (size_t block = begin; block < end; ++block) {
      PackKeyBlock(weights, block / weights.key_blocks, block % weights.key_blocks * kBlockN,
                   weights.key_up.data + block * weights.key_up.block_bytes());
      progress::Advance();
    }
  }

  // Each head's rows, padded to whole blocks.
  std::vector<Segment> ValueSegments(const LatentWeights& weights) const {
    std::vector<Segment> segments;
    const size_t rows = Size(latent_.value_dim), padding = weights.value_blocks * kBlockN - rows;
    for (size_t head = 0; head < shard_.q_heads.size(); ++head) {
      segments.push_back({&kv_b_, RowOf(head) + Size(latent_.nope_dim), rows});
      if (padding > 0) segments.push_back({nullptr, 0, padding});
    }
    return segments;
  }

 private:
  size_t RowOf(size_t head) const {
    return (shard_.q_heads.begin + head) * Size(latent_.nope_dim + latent_.value_dim);
  }

  // Outputs [first, first + 64) of one head's transposed matrix [kv_rank][nope_dim].
  void PackKeyBlock(const LatentWeights& weights, size_t head, size_t first, std::byte* dst) {
    const size_t rank = Size(latent_.kv_rank), nope = Size(latent_.nope_dim);
    const size_t outputs = std::min(kBlockN, rank - first);
    const std::byte* rows = source_.Rows(kv_b_, RowOf(head), nope, scratch_);
    const size_t element = kernels::SizeOf(kv_b_.dtype);
    float line[kBlockN];
    gathered_.resize(outputs * nope);
    for (size_t k = 0; k < nope; ++k) {
      kernels::Convert(reinterpret_cast<std::byte*>(line), Dtype::kF32,
                       rows + (k * rank + first) * element, kv_b_.dtype, outputs);
      for (size_t o = 0; o < outputs; ++o) gathered_[o * nope + k] = line[o];
    }
    kernels::PackBlock(dst, weights.key_up.dtype,
                       reinterpret_cast<const std::byte*>(gathered_.data()), Dtype::kF32, nope,
                       outputs, nope);
  }

  const LatentSpec& latent_;
  const TensorSource& source_;
  const Worker& worker_;
  const Shard& shard_;
  const TensorInfo& kv_b_;
  std::vector<std::byte> scratch_;
  std::vector<float> gathered_;
};

// Whole on every rank: each chooses for its own heads, and must choose as the others do.
void LoadIndex(const DecoderSpec& spec, int index, WeightPacker& packer,
               const IndexWeights& weights) {
  if (spec.index.heads == 0) return;
  const TensorNames& names = spec.names;
  const auto at = [&](const std::string& pattern, const char* suffix) {
    return LayerTensor(pattern, index) + suffix;
  };
  const size_t dim = Size(spec.index.dim), heads = Size(spec.index.heads);
  const TensorInfo q = packer.Find(at(names.index_q, ".weight"));
  const TensorInfo k = packer.Find(at(names.index_k, ".weight"));
  const TensorInfo of_heads = packer.Find(at(names.index_weights, ".weight"));
  packer.PackMatrix(weights.q, {{&q, 0, heads * dim}}, 0);
  packer.PackMatrix(weights.k, {{&k, 0, dim}, {&of_heads, 0, heads}}, 0);
  packer.FillVector(weights.k_norm, at(names.index_k_norm, ".weight"), {0, dim});
  packer.FillVector(weights.k_norm_bias, at(names.index_k_norm, ".bias"), {0, dim});
}

}  // namespace

void LoadLatentAttention(const DecoderSpec& spec, int index, const TensorSource& source,
                         const Worker& worker, const Shard& shard, LayerWeights& layer) {
  const LatentSpec& latent = spec.latent;
  if (shard.q_heads.size() == 0) return;
  WeightPacker packer(source, worker);
  const auto at = [&](const std::string& pattern, const char* suffix) {
    return LayerTensor(pattern, index) + suffix;
  };
  const size_t q_dim = Size(latent.nope_dim + latent.rope_dim);
  const Range own = {shard.q_heads.begin * q_dim, shard.q_heads.end * q_dim};
  const bool compressed = latent.q_rank > 0;
  const Range first = compressed ? Range{0, Size(latent.q_rank)} : own;
  const TensorInfo q = packer.Find(at(compressed ? spec.names.q_a : spec.names.q, ".weight"));
  const TensorInfo kv = packer.Find(at(spec.names.kv_a, ".weight"));
  packer.PackMatrix(
      layer.qkv,
      {{&q, first.begin, first.size()}, {&kv, 0, Size(latent.kv_rank + latent.rope_dim)}}, 0);
  packer.FillVector(layer.k_norm, at(spec.names.kv_a_norm, ".weight"), {0, Size(latent.kv_rank)});
  if (compressed) {
    packer.FillVector(layer.q_norm, at(spec.names.q_a_norm, ".weight"), first);
    const TensorInfo q_b = packer.Find(at(spec.names.q_b, ".weight"));
    packer.PackMatrix(layer.latent.q_up, {{&q_b, own.begin, own.size()}}, 0);
  }
  const TensorInfo kv_b = packer.Find(at(spec.names.kv_b, ".weight"));
  KeyValueUp up(spec, source, worker, shard, kv_b);
  up.PackKeys(layer.latent);
  packer.PackMatrix(layer.latent.value_up, up.ValueSegments(layer.latent), 0);
  LoadIndex(spec, index, packer, layer.index);
}

}  // namespace pinion
