#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/strings.h"
#include "engine/model/gguf.h"
#include "engine/model/quantised_source.h"
#include "engine/model/tensor_list.h"
#include "engine/quant/plain_dtype.h"

namespace pinion {
namespace {

// llama.cpp's converter stores the q and k of `llama` models so that rotated pairs are neighbours:
// row 2 i + half of a head is Hugging Face's row i of that half.
struct RowOrder {
  size_t head_rows = 0;  // 0: as stored

  size_t Stored(size_t row) const {
    if (head_rows == 0) return row;
    const size_t head = row / head_rows, within = row % head_rows, half = head_rows / 2;
    return head * head_rows + within % half * 2 + within / half;
  }
};

struct Placed {
  const GgufTensor* tensor = nullptr;
  RowOrder order;
};
using PlacedTensors = std::map<std::string, Placed>;

size_t RowBytes(const GgufTensor& tensor) {
  const size_t row = tensor.shape.size() < 2 ? 1 : static_cast<size_t>(tensor.shape.back());
  return row / tensor.type->elements * tensor.type->bytes;
}

class GgufQuantised : public QuantisedTensor {
 public:
  GgufQuantised(const MappedFile& file, const Placed& placed)
      : type_(*placed.tensor->type),
        data_(file.data() + placed.tensor->begin),
        row_bytes_(RowBytes(*placed.tensor)),
        order_(placed.order) {
    rows_ = static_cast<size_t>(placed.tensor->shape.front());
    columns_ = static_cast<size_t>(placed.tensor->shape.back());
    group_ = type_.group;
    range_ = {type_.lowest, type_.highest, type_.has_offsets};
    format_ = type_.name;
    stored_bytes_ = placed.tensor->bytes;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    const size_t groups = type_.elements / type_.group;
    for (size_t r = 0; r < count; ++r) {
      const std::byte* block = data_ + order_.Stored(row + r) * row_bytes_;
      for (size_t at = 0; at < columns_; at += type_.elements, block += type_.bytes) {
        type_.decode(block, codes, scales, offsets);
        codes += type_.elements;
        scales += groups;
        offsets += groups;
      }
    }
  }

 private:
  const GgufType& type_;
  const std::byte* data_;
  size_t row_bytes_;
  RowOrder order_;
};

// The tensors that are not quantised.
class GgufSource : public TensorSource {
 public:
  GgufSource(std::shared_ptr<const GgufFile> gguf, PlacedTensors tensors)
      : gguf_(std::move(gguf)), tensors_(std::move(tensors)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    const std::string& path = gguf_->file->path();
    if (found == tensors_.end())
      return Fail(ErrorCode::kNotFound, StrCat("no tensor for '", name, "' among the ",
                                               gguf_->header.tensors.size(), " of ", path));
    const GgufTensor& tensor = *found->second.tensor;
    return TensorInfo{name, *PlainDtype(tensor.type->name), tensor.shape, path};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, placed] : tensors_) names.push_back(name);
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const Placed& placed = tensors_.at(info.name);
    const size_t row_bytes = RowBytes(*placed.tensor);
    const std::byte* data = gguf_->file->data() + placed.tensor->begin;
    const bool aligned = reinterpret_cast<uintptr_t>(data) % kernels::SizeOf(info.dtype) == 0;
    if (placed.order.head_rows == 0 && aligned) return data + row * row_bytes;
    scratch.resize(std::max(scratch.size(), count * row_bytes));
    for (size_t r = 0; r < count; ++r)
      std::memcpy(scratch.data() + r * row_bytes, data + placed.order.Stored(row + r) * row_bytes,
                  row_bytes);
    return scratch.data();
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    const Placed& placed = tensors_.at(info.name);
    const size_t row_bytes = RowBytes(*placed.tensor);
    if (placed.order.head_rows == 0)
      gguf_->file->Release(placed.tensor->begin + row * row_bytes, count * row_bytes);
  }

 private:
  std::shared_ptr<const GgufFile> gguf_;
  PlacedTensors tensors_;
};

// Names in the file of what the spec names; "{}" stands for the layer.
std::vector<std::pair<std::string, std::string>> NamePairs(const TensorNames& names) {
  return {{names.embedding, "token_embd.weight"},
          {names.head, "output.weight"},
          {names.final_norm, "output_norm"},
          {names.attention_norm, "blk.{}.attn_norm"},
          {names.mlp_norm, "blk.{}.ffn_norm"},
          {names.q, "blk.{}.attn_q"},
          {names.k, "blk.{}.attn_k"},
          {names.v, "blk.{}.attn_v"},
          {names.o, "blk.{}.attn_output"},
          {names.q_norm, "blk.{}.attn_q_norm"},
          {names.k_norm, "blk.{}.attn_k_norm"},
          {names.gate, "blk.{}.ffn_gate"},
          {names.up, "blk.{}.ffn_up"},
          {names.down, "blk.{}.ffn_down"}};
}

// The file's name of a tensor of the spec, and whether it is a q or k; empty if there is none.
struct FileName {
  std::string name;
  bool is_q_or_k = false;
};
FileName NameInFile(const DecoderSpec& spec, const TensorSpec& tensor) {
  for (const auto& [ours, theirs] : NamePairs(spec.names)) {
    const std::string prefix = LayerTensor(ours, tensor.layer);
    if (prefix.empty() || !tensor.name.starts_with(prefix)) continue;
    const std::string rest = tensor.name.substr(prefix.size());
    if (!rest.empty() && rest[0] != '.') continue;
    return {LayerTensor(theirs, tensor.layer) + rest, ours == spec.names.q || ours == spec.names.k};
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> OpenGguf(const std::string& path) {
  PINION_ASSIGN(auto file, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file->data()), file->size_bytes());
  auto header = ReadGgufHeader(text);
  if (!header) return Unexpected(std::move(header).error().In(path));
  return std::make_shared<const GgufFile>(GgufFile{std::move(file), std::move(*header)});
}

Result<std::unique_ptr<TensorSource>> OpenGgufTensors(std::shared_ptr<const GgufFile> gguf,
                                                      const DecoderSpec& spec) {
  std::map<std::string_view, const GgufTensor*> held;
  for (const GgufTensor& tensor : gguf->header.tensors) held.emplace(tensor.name, &tensor);
  PINION_ASSIGN(const std::string architecture,
                Require<std::string>(gguf->header.metadata, "general.architecture"));
  const size_t permuted = architecture == "llama" ? static_cast<size_t>(spec.head_dim) : 0;
  PlacedTensors plain;
  QuantisedTensors quantised;
  for (const TensorSpec& tensor : TensorList(spec)) {
    const FileName name = NameInFile(spec, tensor);
    const auto found = held.find(name.name);
    if (found == held.end()) continue;  // the check of all tensors names what is missing
    const Placed placed{found->second, {name.is_q_or_k ? permuted : 0}};
    if (placed.tensor->shape != tensor.shape)
      return Fail(ErrorCode::kCorrupt, StrCat("tensor '", name.name, "' of ", gguf->file->path(),
                                              " has another shape than its metadata asks for"));
    if (PlainDtype(placed.tensor->type->name))
      plain.emplace(tensor.name, placed);
    else
      quantised.emplace(tensor.name, std::make_unique<GgufQuantised>(*gguf->file, placed));
  }
  return WithQuantised(std::make_unique<GgufSource>(std::move(gguf), std::move(plain)),
                       std::move(quantised));
}

}  // namespace pinion
