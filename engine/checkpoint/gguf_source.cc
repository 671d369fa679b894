#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_encoder.h"
#include "engine/checkpoint/gguf_latent.h"
#include "engine/checkpoint/gguf_scale.h"
#include "engine/checkpoint/plain_dtype.h"
#include "engine/checkpoint/quantised_source.h"
#include "engine/checkpoint/stored.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// llama.cpp's converter stores the q and k of some models so that rotated pairs are neighbours: row
// 2 i + half of a head is Hugging Face's row i of that half.
struct RowOrder {
  size_t head_rows = 0;  // 0: as stored

  size_t Stored(size_t row) const {
    if (head_rows == 0) return row;
    const size_t head = row / head_rows, within = row % head_rows, half = head_rows / 2;
    return head * head_rows + within % half * 2 + within / half;
  }
};

// What the file holds of a tensor of the spec: a tensor, or an expert's part of one.
struct Placed {
  GgufTensor tensor;
  RowOrder order;
  float scale = 1;  // of all values
};
using PlacedTensors = std::map<std::string, Placed>;

size_t RowBytes(const GgufTensor& tensor) {
  const size_t row = tensor.shape.size() < 2 ? 1 : static_cast<size_t>(tensor.shape.back());
  return row / tensor.type->elements * tensor.type->bytes;
}

class GgufQuantised : public QuantisedTensor {
 public:
  GgufQuantised(const GgufFile& gguf, const Placed& placed)
      : type_(*placed.tensor.type),
        data_(gguf.Data(placed.tensor)),
        row_bytes_(RowBytes(placed.tensor)),
        order_(placed.order),
        scale_(placed.scale) {
    rows_ = static_cast<size_t>(placed.tensor.shape.front());
    columns_ = static_cast<size_t>(placed.tensor.shape.back());
    group_ = type_.group;
    range_ = {type_.lowest, type_.highest, type_.has_offsets, type_.e2m1};
    format_ = type_.name;
    stored_bytes_ = placed.tensor.bytes;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    const size_t groups = type_.elements / type_.group;
    for (size_t r = 0; r < count; ++r) {
      const std::byte* block = data_ + order_.Stored(row + r) * row_bytes_;
      for (size_t at = 0; at < columns_; at += type_.elements, block += type_.bytes) {
        type_.decode(block, codes, scales, offsets);
        for (size_t i = 0; i < groups; ++i) scales[i] *= scale_, offsets[i] *= scale_;
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
  float scale_;
};

// The tensors that are not quantised.
class GgufSource : public TensorSource {
 public:
  GgufSource(std::shared_ptr<const GgufFile> gguf, PlacedTensors tensors)
      : gguf_(std::move(gguf)), tensors_(std::move(tensors)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      return Fail(ErrorCode::kNotFound,
                  StrCat("no tensor for '", name, "' among the ", gguf_->header.tensors.size(),
                         " of ", gguf_->files[0]->path()));
    const GgufTensor& tensor = found->second.tensor;
    return TensorInfo{name, *PlainDtype(tensor.type->name), tensor.shape,
                      gguf_->FileOf(tensor).path()};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, placed] : tensors_) names.push_back(name);
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const Placed& placed = tensors_.at(info.name);
    const size_t row_bytes = RowBytes(placed.tensor);
    const std::byte* data = gguf_->Data(placed.tensor);
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
    const size_t row_bytes = RowBytes(placed.tensor);
    if (placed.order.head_rows == 0)
      gguf_->FileOf(placed.tensor)
          .Release(placed.tensor.begin + row * row_bytes, count * row_bytes);
  }

 private:
  std::shared_ptr<const GgufFile> gguf_;
  PlacedTensors tensors_;
};

// Names in the file of what the spec names; "{}" stands for the layer. A name of theirs without
// ".weight" stands for weight and bias.
struct NamePair {
  std::string TensorNames::*ours;
  std::string_view theirs;
};
constexpr NamePair kNames[] = {
    {&TensorNames::embedding, "token_embd.weight"},
    {&TensorNames::position_embedding, "position_embd.weight"},
    {&TensorNames::type_embedding, "token_types.weight"},
    {&TensorNames::embedding_norm, "token_embd_norm"},
    {&TensorNames::head, "output.weight"},
    {&TensorNames::classifier_dense, "cls"},
    {&TensorNames::classifier_norm, "cls.norm"},
    {&TensorNames::classifier_out, "cls.output"},
    {&TensorNames::final_norm, "output_norm"},
    {&TensorNames::attention_norm, "blk.{}.attn_norm"},
    {&TensorNames::attention_post_norm, "blk.{}.post_attention_norm"},
    {&TensorNames::mlp_norm, "blk.{}.ffn_norm"},
    {&TensorNames::mlp_post_norm, "blk.{}.post_ffw_norm"},
    {&TensorNames::q, "blk.{}.attn_q"},
    {&TensorNames::k, "blk.{}.attn_k"},
    {&TensorNames::v, "blk.{}.attn_v"},
    {&TensorNames::qkv, "blk.{}.attn_qkv"},
    {&TensorNames::o, "blk.{}.attn_output"},
    {&TensorNames::q_norm, "blk.{}.attn_q_norm"},
    {&TensorNames::k_norm, "blk.{}.attn_k_norm"},
    {&TensorNames::sinks, "blk.{}.attn_sinks.weight"},
    {&TensorNames::conv_in, "blk.{}.shortconv.in_proj"},
    {&TensorNames::conv, "blk.{}.shortconv.conv"},
    {&TensorNames::conv_o, "blk.{}.shortconv.out_proj"},
    {&TensorNames::q_a, "blk.{}.attn_q_a"},
    {&TensorNames::q_a_norm, "blk.{}.attn_q_a_norm"},
    {&TensorNames::q_b, "blk.{}.attn_q_b"},
    {&TensorNames::kv_a, "blk.{}.attn_kv_a_mqa"},
    {&TensorNames::kv_a_norm, "blk.{}.attn_kv_a_norm"},
    {&TensorNames::kv_b, "blk.{}.attn_kv_b"},
    {&TensorNames::gate, "blk.{}.ffn_gate"},
    {&TensorNames::up, "blk.{}.ffn_up"},
    {&TensorNames::gate_up, "blk.{}.ffn_up"},
    {&TensorNames::down, "blk.{}.ffn_down"},
    {&TensorNames::router, "blk.{}.ffn_gate_inp"},
    {&TensorNames::router_correction, "blk.{}.exp_probs_b.bias"},
    {&TensorNames::expert_gate, "blk.{}.ffn_gate_exps"},
    {&TensorNames::expert_up, "blk.{}.ffn_up_exps"},
    {&TensorNames::expert_down, "blk.{}.ffn_down_exps"},
    {&TensorNames::shared_gate, "blk.{}.ffn_gate_shexp"},
    {&TensorNames::shared_up, "blk.{}.ffn_up_shexp"},
    {&TensorNames::shared_down, "blk.{}.ffn_down_shexp"},
};

bool IsOfExperts(std::string TensorNames::*name) {
  return name == &TensorNames::expert_gate || name == &TensorNames::expert_up ||
         name == &TensorNames::expert_down;
}

// Where the file holds a module or a whole tensor of the spec.
struct FilePlace {
  std::string name;
  int expert = -1;  // its part of the tensor of all experts
  bool is_q_or_k = false;
};
using Places = std::map<std::string, FilePlace>;

void AddPlaces(const NamePair& pair, const DecoderSpec& spec, Places& places) {
  const std::string& ours = spec.names.*pair.ours;
  if (ours.empty()) return;
  const bool is_q_or_k = pair.ours == &TensorNames::q || pair.ours == &TensorNames::k;
  const int layers = pair.theirs.starts_with("blk.") ? spec.layers : 1;
  const int experts = IsOfExperts(pair.ours) ? spec.moe.router.experts : 0;
  for (int layer = 0; layer < layers; ++layer) {
    const std::string theirs = LayerTensor(pair.theirs, layer);
    for (int expert = 0; expert < experts; ++expert)
      places[ExpertTensor(ours, layer, expert)] = {theirs, expert};
    if (experts == 0) places[LayerTensor(ours, layer)] = {theirs, -1, is_q_or_k};
  }
}

Places PlacesOf(const DecoderSpec& spec, const GgufArchitecture& architecture) {
  Places places;
  for (NamePair pair : kNames) {
    for (const GgufName& renamed : architecture.renamed)
      if (pair.ours == renamed.ours) pair.theirs = renamed.theirs;
    AddPlaces(pair, spec, places);
  }
  return places;
}

// An empty name: the file has no such tensor.
FilePlace PlaceOf(const Places& places, const std::string& name) {
  if (const auto whole = places.find(name); whole != places.end()) return whole->second;
  const size_t dot = name.rfind('.');
  const auto module = places.find(name.substr(0, dot));
  if (dot == std::string::npos || module == places.end()) return {};
  FilePlace place = module->second;
  place.name += name.substr(dot);
  return place;
}

// One expert's part of a tensor of all, [experts][...].
GgufTensor ExpertOf(GgufTensor tensor, int expert) {
  const auto experts = static_cast<uint64_t>(tensor.shape.front());
  tensor.bytes /= experts;
  tensor.begin += static_cast<uint64_t>(expert) * tensor.bytes;
  tensor.shape.erase(tensor.shape.begin());
  return tensor;
}

using HeldTensors = std::map<std::string_view, const GgufTensor*>;

// The factor of a tensor's weights: 1 without a scale beside it. A bias is not scaled.
Result<float> ScaleOf(const GgufFile& gguf, const HeldTensors& held, const GgufTensor& stored,
                      int expert) {
  if (!stored.name.ends_with(".weight")) return 1.0f;
  const auto scale = held.find(GgufScaleName(stored.name));
  if (scale == held.end()) return 1.0f;
  return ReadGgufScale(gguf, *scale->second, stored, expert);
}

bool IsOfDenseModule(std::string_view tensor) {
  const std::string_view module = tensor.substr(0, tensor.rfind('.'));
  return std::find(std::begin(kDenseModules), std::end(kDenseModules), module) !=
         std::end(kDenseModules);
}

std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// A vector may be stored as a matrix of one row, and such a matrix as a vector; a convolution of
// each channel by itself as a matrix. Blocks lie along rows, so those keep their length.
bool Fits(const GgufTensor& stored, const std::vector<int64_t>& want) {
  return WithoutOnes(stored.shape) == WithoutOnes(want) &&
         (PlainDtype(stored.type->name) || stored.shape.back() == want.back());
}

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenGgufTensors(std::shared_ptr<const GgufFile> gguf,
                                                      const DecoderSpec& spec) {
  HeldTensors held;
  for (const GgufTensor& tensor : gguf->header.tensors) held.emplace(tensor.name, &tensor);
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(gguf->header));
  const size_t permuted = architecture->permuted ? static_cast<size_t>(spec.head_dim) : 0;
  const Places places = PlacesOf(spec, *architecture);
  PlacedTensors plain;
  QuantisedTensors quantised;
  const auto add = [&](const std::string& name, const Placed& placed) {
    if (PlainDtype(placed.tensor.type->name))
      plain.emplace(name, placed);
    else
      quantised.emplace(name, std::make_unique<GgufQuantised>(*gguf, placed));
  };
  for (const TensorSpec& tensor : TensorList(spec)) {
    const FilePlace place = PlaceOf(places, tensor.name);
    const auto found = held.find(place.name);
    if (found == held.end()) continue;  // the check of all tensors names what is missing
    GgufTensor stored = *found->second;
    std::vector<int64_t> want = tensor.shape;
    if (place.expert >= 0) want.insert(want.begin(), spec.moe.router.experts);
    if (!Fits(stored, want))
      return Fail(
          ErrorCode::kCorrupt,
          StrCat("tensor '", place.name, "' of ", gguf->FileOf(stored).path(), " has shape ",
                 ShapeText(stored.shape), ", its metadata asks for ", ShapeText(want)));
    stored.shape = std::move(want);
    PINION_ASSIGN(const float scale, ScaleOf(*gguf, held, stored, place.expert));
    const Placed placed{place.expert >= 0 ? ExpertOf(stored, place.expert) : stored,
                        {place.is_q_or_k ? permuted : 0},
                        scale};
    add(tensor.name, placed);
  }
  for (const auto& [name, tensor] : held) {  // the embedder's, which the spec does not name
    if (!IsOfDenseModule(name)) continue;
    if (name.ends_with(".weight")) PINION_TRY(RefuseGgufScale(*gguf, *tensor));
    add(std::string(name), {*tensor, {}, 1});
  }
  std::unique_ptr<TensorSource> source =
      WithQuantised(std::make_unique<GgufSource>(gguf, std::move(plain)), std::move(quantised));
  if (spec.latent.kv_rank == 0) return source;
  return WithLatentRows(std::move(source), std::move(gguf), spec);
}

}  // namespace pinion
