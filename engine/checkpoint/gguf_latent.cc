#include "engine/checkpoint/gguf_latent.h"

#include <algorithm>
#include <map>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf_scale.h"
#include "engine/checkpoint/plain_dtype.h"
#include "engine/checkpoint/stored.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// Rows [row, row + count) of a tensor's last dimension as float32 [count][columns].
void ReadRows(const GgufFile& gguf, const GgufTensor& tensor, size_t row, size_t count,
              float* dst) {
  const GgufType& type = *tensor.type;
  const auto columns = static_cast<size_t>(tensor.shape.back());
  const size_t row_bytes = columns / type.elements * type.bytes;
  const std::byte* data = gguf.Data(tensor) + row * row_bytes;
  if (!type.decode) {
    const StoredTensor stored{std::string(type.name), tensor.shape, data};
    ReadFloats(stored, 0, count * columns, dst);
    return;
  }
  std::vector<int8_t> codes(type.elements);
  std::vector<float> scales(type.elements / type.group), offsets(scales.size());
  const size_t blocks = count * columns / type.elements;
  for (size_t block = 0; block < blocks; ++block, data += type.bytes) {
    type.decode(data, codes.data(), scales.data(), offsets.data());
    for (size_t i = 0; i < type.elements; ++i)
      *dst++ = scales[i / type.group] * static_cast<float>(codes[i]) + offsets[i / type.group];
  }
}

// Of one layer.
struct LatentRows {
  const GgufTensor* keys = nullptr;
  const GgufTensor* values = nullptr;
};

class LatentSource : public TensorSource {
 public:
  LatentSource(std::unique_ptr<TensorSource> source, std::shared_ptr<const GgufFile> gguf,
               const DecoderSpec& spec, std::map<std::string, LatentRows> matrices)
      : source_(std::move(source)),
        gguf_(std::move(gguf)),
        heads_(static_cast<size_t>(spec.heads)),
        rank_(static_cast<size_t>(spec.latent.kv_rank)),
        nope_(static_cast<size_t>(spec.latent.nope_dim)),
        value_(static_cast<size_t>(spec.latent.value_dim)),
        matrices_(std::move(matrices)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    const auto found = matrices_.find(name);
    if (found == matrices_.end()) return source_->Find(name);
    const std::vector<int64_t> shape{static_cast<int64_t>(heads_ * (nope_ + value_)),
                                     static_cast<int64_t>(rank_)};
    return TensorInfo{name, kernels::Dtype::kF32, shape, gguf_->FileOf(*found->second.keys).path()};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names = source_->Names();
    for (const auto& [name, matrix] : matrices_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const auto found = matrices_.find(info.name);
    if (found == matrices_.end()) return source_->Rows(info, row, count, scratch);
    scratch.resize(std::max(scratch.size(), count * rank_ * sizeof(float)));
    auto* dst = reinterpret_cast<float*>(scratch.data());
    const size_t end = row + count, of_head = nope_ + value_;
    while (row < end) {
      const size_t head = row / of_head, first = row % of_head;
      const bool is_key = first < nope_;
      const size_t run = std::min(end - row, (is_key ? nope_ : of_head) - first);
      if (is_key)
        ReadKeys(*found->second.keys, head, first, run, dst);
      else
        ReadRows(*gguf_, *found->second.values, head * value_ + first - nope_, run, dst);
      row += run;
      dst += run * rank_;
    }
    return scratch.data();
  }
  const QuantisedTensor* Quantised(const std::string& name) const override {
    return source_->Quantised(name);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    if (!matrices_.contains(info.name)) source_->Release(info, row, count);
  }

 private:
  // Rows [first, first + count) of a head's keys, which are columns in the file.
  void ReadKeys(const GgufTensor& keys, size_t head, size_t first, size_t count, float* dst) const {
    std::vector<float> columns(rank_ * nope_);
    ReadRows(*gguf_, keys, head * rank_, rank_, columns.data());
    for (size_t i = 0; i < count; ++i)
      for (size_t j = 0; j < rank_; ++j) dst[i * rank_ + j] = columns[j * nope_ + first + i];
  }

  std::unique_ptr<TensorSource> source_;
  std::shared_ptr<const GgufFile> gguf_;
  size_t heads_, rank_, nope_, value_;
  std::map<std::string, LatentRows> matrices_;
};

// A tensor with its shape checked, and refused with a scale; null if there is none.
Result<const GgufTensor*> FindTensor(const GgufFile& gguf, const std::string& name,
                                     const std::vector<int64_t>& shape) {
  for (const GgufTensor& tensor : gguf.header.tensors) {
    if (tensor.name != name) continue;
    if (tensor.shape != shape)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", name, "' of ", gguf.FileOf(tensor).path(), " has shape ",
                         ShapeText(tensor.shape), ", its metadata asks for ", ShapeText(shape)));
    PINION_TRY(RefuseGgufScale(gguf, tensor));
    return &tensor;
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> WithLatentRows(std::unique_ptr<TensorSource> source,
                                                     std::shared_ptr<const GgufFile> gguf,
                                                     const DecoderSpec& spec) {
  const LatentSpec& latent = spec.latent;
  const int64_t heads = spec.heads;
  std::map<std::string, LatentRows> matrices;
  for (int layer = 0; layer < spec.layers; ++layer) {
    PINION_ASSIGN(const GgufTensor* keys,
                  FindTensor(*gguf, LayerTensor("blk.{}.attn_k_b.weight", layer),
                             {heads, latent.kv_rank, latent.nope_dim}));
    PINION_ASSIGN(const GgufTensor* values,
                  FindTensor(*gguf, LayerTensor("blk.{}.attn_v_b.weight", layer),
                             {heads, latent.value_dim, latent.kv_rank}));
    // Without both, the check of all tensors names what is missing.
    if (keys && values) matrices[LayerTensor(spec.names.kv_b, layer) + ".weight"] = {keys, values};
  }
  return std::make_unique<LatentSource>(std::move(source), std::move(gguf), spec,
                                        std::move(matrices));
}

}  // namespace pinion
