#include "engine/model/weights.h"

#include <cstring>
#include <string>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

// Hands out 64-byte aligned pieces of one mapping. With a null base it only counts, so that one
// function lays the weights out for both purposes.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}
  size_t used() const { return used_; }

  float* Vector(size_t n) { return reinterpret_cast<float*>(Take(n * sizeof(float))); }
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

LayerWeights LayOutLayer(const DecoderSpec& spec, const Shard& shard, Dtype dtype, Arena& arena) {
  const auto hidden = static_cast<size_t>(spec.hidden),
             head_dim = static_cast<size_t>(spec.head_dim);
  const size_t q = shard.q_heads.size() * head_dim, kv = shard.kv_heads.size() * head_dim;
  const size_t middle = shard.intermediate.size();
  const bool gated = spec.mlp == MlpKind::kSiluGated;
  LayerWeights layer;
  const auto vector_if = [&](bool wanted, size_t n) { return wanted ? arena.Vector(n) : nullptr; };
  layer.attention_norm = arena.Vector(hidden);
  layer.attention_norm_bias = vector_if(spec.norm_bias, hidden);
  layer.mlp_norm = arena.Vector(hidden);
  layer.mlp_norm_bias = vector_if(spec.norm_bias, hidden);
  layer.qkv = arena.Matrix(dtype, q + 2 * kv, hidden);
  layer.o = arena.Matrix(dtype, hidden, q);
  const size_t in_outputs = gated ? 2 * kernels::RoundUp(middle, kBlockN) : middle;
  layer.mlp_in = arena.Matrix(dtype, in_outputs, hidden);
  layer.down = arena.Matrix(dtype, hidden, middle);
  layer.qkv_bias = vector_if(spec.qkv_bias, layer.qkv.outputs);
  layer.o_bias = vector_if(spec.o_bias, hidden);
  layer.mlp_in_bias = vector_if(spec.mlp_bias, kernels::RoundUp(layer.mlp_in.outputs, kBlockN));
  layer.down_bias = vector_if(spec.mlp_bias, hidden);
  return layer;
}

void LayOut(const DecoderSpec& spec, Dtype dtype, Arena& arena, RankWeights& weights) {
  weights.layers.clear();
  for (int i = 0; i < spec.layers; ++i)
    weights.layers.push_back(LayOutLayer(spec, weights.shard, dtype, arena));
  const auto hidden = static_cast<size_t>(spec.hidden);
  weights.final_norm = arena.Vector(hidden);
  weights.final_norm_bias = spec.norm_bias ? arena.Vector(hidden) : nullptr;
  weights.head = arena.Matrix(dtype, weights.shard.vocabulary.size(), hidden);
}

// Consecutive outputs of a packed matrix and the tensor rows they come from; no tensor: zeros.
struct Segment {
  const TensorInfo* tensor;
  size_t row, count;
};

std::string LayerName(const std::string& pattern, int layer, const char* suffix) {
  const auto at = pattern.find("{}");
  CHECK(at != std::string::npos) << pattern;
  return StrCat(pattern.substr(0, at), layer, pattern.substr(at + 2), suffix);
}

// How much of a file may be resident per thread before it is let go: some 2 ms of packing.
constexpr size_t kReleaseBytes = size_t{8} << 20;

// One worker's loading of one rank: packs its own blocks; thread 0 fills the vectors.
class Loader {
 public:
  Loader(const DecoderSpec& spec, const TensorSource& source, const Worker& worker,
         RankWeights& weights)
      : spec_(spec), source_(source), worker_(worker), weights_(weights) {}

  void Load() {
    for (int i = 0; i < spec_.layers; ++i) LoadLayer(i);
    const Range all{0, static_cast<size_t>(spec_.hidden)};
    FillVector(weights_.final_norm, spec_.names.final_norm + ".weight", all);
    FillVector(weights_.final_norm_bias, spec_.names.final_norm + ".bias", all);
    const TensorInfo head = Find(spec_.tied_head ? spec_.names.embedding : spec_.names.head);
    const Range vocabulary = weights_.shard.vocabulary;
    PackMatrix(weights_.head, {{&head, vocabulary.begin, vocabulary.size()}}, 0);
  }

 private:
  TensorInfo Find(const std::string& name) const {
    auto found = source_.Find(name);
    CHECK(found) << found.error().message;
    return *std::move(found);
  }

  void LoadLayer(int index) {
    LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
    const TensorNames& names = spec_.names;
    const Range hidden{0, static_cast<size_t>(spec_.hidden)};
    FillVector(layer.attention_norm, LayerName(names.attention_norm, index, ".weight"), hidden);
    FillVector(layer.attention_norm_bias, LayerName(names.attention_norm, index, ".bias"), hidden);
    FillVector(layer.mlp_norm, LayerName(names.mlp_norm, index, ".weight"), hidden);
    FillVector(layer.mlp_norm_bias, LayerName(names.mlp_norm, index, ".bias"), hidden);
    FillVector(layer.o_bias, LayerName(names.o, index, ".bias"), hidden);
    FillVector(layer.down_bias, LayerName(names.down, index, ".bias"), hidden);
    LoadAttention(layer, index);
    LoadMlp(layer, index);
  }

  void LoadAttention(LayerWeights& layer, int index) {
    const auto head_dim = static_cast<size_t>(spec_.head_dim);
    const auto rows = [&](Range heads) {
      return Range{heads.begin * head_dim, heads.end * head_dim};
    };
    const Range q = rows(weights_.shard.q_heads), kv = rows(weights_.shard.kv_heads);
    const TensorNames& names = spec_.names;
    const TensorInfo tensors[] = {Find(LayerName(names.q, index, ".weight")),
                                  Find(LayerName(names.k, index, ".weight")),
                                  Find(LayerName(names.v, index, ".weight"))};
    PackMatrix(layer.qkv,
               {{&tensors[0], q.begin, q.size()},
                {&tensors[1], kv.begin, kv.size()},
                {&tensors[2], kv.begin, kv.size()}},
               0);
    float* bias = layer.qkv_bias;
    if (bias && layer.qkv.outputs > 0) {
      FillVector(bias, LayerName(names.q, index, ".bias"), q);
      FillVector(bias + q.size(), LayerName(names.k, index, ".bias"), kv);
      FillVector(bias + q.size() + kv.size(), LayerName(names.v, index, ".bias"), kv);
    }
    const TensorInfo o = Find(LayerName(names.o, index, ".weight"));
    PackMatrix(layer.o, {{&o, 0, static_cast<size_t>(spec_.hidden)}}, q.begin);
  }

  void LoadMlp(LayerWeights& layer, int index) {
    const Range middle = weights_.shard.intermediate;
    const TensorNames& names = spec_.names;
    const TensorInfo up = Find(LayerName(names.up, index, ".weight"));
    if (spec_.mlp == MlpKind::kSiluGated) {
      const TensorInfo gate = Find(LayerName(names.gate, index, ".weight"));
      std::vector<Segment> segments;
      for (size_t row = middle.begin; row < middle.end; row += kBlockN) {
        const size_t count = std::min(kBlockN, middle.end - row);
        for (const TensorInfo* tensor : {&gate, &up}) {
          segments.push_back({tensor, row, count});
          if (count < kBlockN) segments.push_back({nullptr, 0, kBlockN - count});
        }
      }
      PackMatrix(layer.mlp_in, segments, 0, 2);
      FillGatedBias(layer, index);
    } else {
      PackMatrix(layer.mlp_in, {{&up, middle.begin, middle.size()}}, 0);
      FillVector(layer.mlp_in_bias, LayerName(names.up, index, ".bias"), middle);
    }
    const TensorInfo down = Find(LayerName(names.down, index, ".weight"));
    PackMatrix(layer.down, {{&down, 0, static_cast<size_t>(spec_.hidden)}}, middle.begin);
  }

  void FillGatedBias(LayerWeights& layer, int index) {
    const Range middle = weights_.shard.intermediate;
    if (!layer.mlp_in_bias) return;
    float* dst = layer.mlp_in_bias;
    for (size_t row = middle.begin; row < middle.end; row += kBlockN) {
      const Range rows{row, std::min(row + kBlockN, middle.end)};
      FillVector(dst, LayerName(spec_.names.gate, index, ".bias"), rows);
      FillVector(dst + kBlockN, LayerName(spec_.names.up, index, ".bias"), rows);
      dst += 2 * kBlockN;
    }
  }

  // dst[i] = tensor[range.begin + i]; by the rank's first thread, skipped where there is no dst.
  void FillVector(float* dst, const std::string& name, Range range) {
    if (!dst || worker_.thread != 0 || range.size() == 0) return;
    const TensorInfo info = Find(name);
    const std::byte* src = source_.Rows(info, range.begin, range.size(), scratch_);
    kernels::Convert(reinterpret_cast<std::byte*>(dst), Dtype::kF32, src, info.dtype, range.size());
  }

  // Packs this worker's blocks; `column` is the first input taken. File pages are let go on the
  // way, or the whole checkpoint would be resident beside the packed weights at the end. Where
  // another rank still wants other columns of the same rows, its next look brings them back from
  // the cache.
  void PackMatrix(const PackedMatrix& matrix, const std::vector<Segment>& segments, size_t column,
                  size_t unit = 1) {
    const auto [begin, end] = BlocksOf(worker_, matrix, unit);
    const size_t step =
        std::max<size_t>(1, kReleaseBytes / std::max<size_t>(1, matrix.block_bytes()));
    for (size_t first = begin; first < end; first += step) {
      const size_t last = std::min(first + step, end);
      for (size_t block = first; block < last; ++block) PackOne(matrix, segments, column, block);
      Release(segments, {first * kBlockN, last * kBlockN});
    }
  }

  void Release(const std::vector<Segment>& segments, Range outputs) const {
    size_t output = 0;
    for (const Segment& segment : segments) {
      const size_t first = std::max(output, outputs.begin);
      const size_t last = std::min(output + segment.count, outputs.end);
      if (segment.tensor && first < last)
        source_.Release(*segment.tensor, segment.row + first - output, last - first);
      output += segment.count;
    }
  }

  void PackOne(const PackedMatrix& matrix, const std::vector<Segment>& segments, size_t column,
               size_t block) {
    const size_t first = block * kBlockN, rows = std::min(kBlockN, matrix.outputs - first);
    std::byte* dst = matrix.data + block * matrix.block_bytes();
    size_t output = 0;
    for (const Segment& segment : segments) {
      if (first >= output && first + rows <= output + segment.count && segment.tensor) {
        const auto columns = static_cast<size_t>(segment.tensor->shape.at(1));
        const std::byte* src =
            source_.Rows(*segment.tensor, segment.row + first - output, rows, scratch_);
        src += column * kernels::SizeOf(segment.tensor->dtype);
        kernels::PackBlock(dst, matrix.dtype, src, segment.tensor->dtype, columns, rows, matrix.k);
        return;
      }
      output += segment.count;
    }
    GatherAndPack(matrix, segments, column, first, rows, dst);
  }

  // A block whose outputs come from several tensors: collected in float32 first.
  void GatherAndPack(const PackedMatrix& matrix, const std::vector<Segment>& segments,
                     size_t column, size_t first, size_t rows, std::byte* dst) {
    gathered_.assign(rows * matrix.k, 0.0f);
    size_t output = 0;
    for (const Segment& segment : segments) {
      const size_t begin = std::max(output, first),
                   end = std::min(output + segment.count, first + rows);
      for (size_t at = begin; at < end && segment.tensor; ++at) {
        const TensorInfo& tensor = *segment.tensor;
        const std::byte* src = source_.Rows(tensor, segment.row + at - output, 1, scratch_) +
                               column * kernels::SizeOf(tensor.dtype);
        auto* row = reinterpret_cast<std::byte*>(gathered_.data() + (at - first) * matrix.k);
        kernels::Convert(row, Dtype::kF32, src, tensor.dtype, matrix.k);
      }
      output += segment.count;
    }
    kernels::PackBlock(dst, matrix.dtype, reinterpret_cast<const std::byte*>(gathered_.data()),
                       Dtype::kF32, matrix.k, rows, matrix.k);
  }

  const DecoderSpec& spec_;
  const TensorSource& source_;
  const Worker& worker_;
  RankWeights& weights_;
  std::vector<std::byte> scratch_;
  std::vector<float> gathered_;
};

}  // namespace

uint64_t ShardWeightBytes(const DecoderSpec& spec, Dtype dtype, int ranks, int rank) {
  RankWeights weights;
  weights.shard = MakeShard(spec, ranks, rank);
  Arena counter(nullptr);
  LayOut(spec, dtype, counter, weights);
  return counter.used();
}

Result<std::vector<RankWeights>> LoadWeights(const DecoderSpec& spec, Dtype dtype,
                                             const TensorSource& source, Ranks& ranks) {
  std::vector<RankWeights> all(static_cast<size_t>(ranks.count()));
  for (int rank = 0; rank < ranks.count(); ++rank) {
    RankWeights& weights = all[static_cast<size_t>(rank)];
    weights.shard = MakeShard(spec, ranks.count(), rank);
    const uint64_t bytes = ShardWeightBytes(spec, dtype, ranks.count(), rank);
    PINION_ASSIGN(weights.storage, Pages::Allocate(bytes));
    Arena arena(weights.storage.data());
    LayOut(spec, dtype, arena, weights);
  }
  ranks.Run([&](const Worker& worker) {
    Loader(spec, source, worker, all[static_cast<size_t>(worker.rank)]).Load();
  });
  return all;
}

}  // namespace pinion
