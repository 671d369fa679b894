#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_architectures.h"
#include "engine/checkpoint/gguf_encoder.h"
#include "engine/checkpoint/gguf_latent.h"
#include "engine/checkpoint/gguf_places.h"
#include "engine/checkpoint/gguf_scale.h"
#include "engine/checkpoint/plain_dtype.h"
#include "engine/checkpoint/quantised_source.h"
#include "engine/checkpoint/stored.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// The place of a tensor of the spec in the file: a tensor, or an expert's part of one.
struct Placed {
  GgufTensor tensor;
  GgufOrder rows = {}, columns = {};
  float scale = 1;  // of all values
  bool is_negated_exp = false;
};
using PlacedTensors = std::map<std::string, Placed>;

size_t RowBytes(const GgufTensor& tensor) {
  return RowElements(tensor.shape) / tensor.type->elements * tensor.type->bytes;
}

// Puts the elements of a row in the model's order; `bytes` of each.
void Arrange(const GgufOrder& columns, const std::byte* src, size_t bytes, size_t row_bytes,
             std::byte* dst) {
  const size_t unit = columns.unit * bytes;
  for (size_t at = 0; at < row_bytes; at += unit)
    std::memcpy(dst + at, src + columns.Stored(at / bytes) * bytes, unit);
}

class GgufQuantised : public QuantisedTensor {
 public:
  GgufQuantised(const GgufFile& gguf, const Placed& placed)
      : type_(*placed.tensor.type),
        data_(gguf.Data(placed.tensor)),
        row_bytes_(RowBytes(placed.tensor)),
        order_(placed.rows),
        column_order_(placed.columns),
        scale_(placed.scale) {
    rows_ = static_cast<size_t>(placed.tensor.shape.front());
    columns_ = static_cast<size_t>(placed.tensor.shape.back());
    group_ = type_.group;
    range_ = {type_.lowest, type_.highest, type_.has_offsets, type_.e2m1};
    format_ = type_.name;
    stored_bytes_ = placed.tensor.bytes;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    const size_t groups = columns_ / type_.group;
    for (size_t r = 0; r < count; ++r, codes += columns_, scales += groups, offsets += groups) {
      ReadStored(order_.Stored(row + r), codes, scales, offsets);
      if (column_order_.is_reordered()) ArrangeRow(codes, scales, offsets);
    }
  }

 private:
  void ReadStored(size_t row, int8_t* codes, float* scales, float* offsets) const {
    const size_t groups = type_.elements / type_.group;
    const std::byte* block = data_ + row * row_bytes_;
    for (size_t at = 0; at < columns_; at += type_.elements, block += type_.bytes) {
      type_.decode(block, codes, scales, offsets);
      for (size_t i = 0; i < groups; ++i) scales[i] *= scale_, offsets[i] *= scale_;
      codes += type_.elements;
      scales += groups;
      offsets += groups;
    }
  }
  // Units are whole groups, so that scales move with their codes.
  void ArrangeRow(int8_t* codes, float* scales, float* offsets) const {
    GgufOrder of_groups = column_order_;
    of_groups.unit /= type_.group;
    std::vector<std::byte> stored;
    const auto arrange = [&](const GgufOrder& order, auto* values, size_t count) {
      auto* bytes = reinterpret_cast<std::byte*>(values);
      stored.assign(bytes, bytes + count * sizeof(*values));
      Arrange(order, stored.data(), sizeof(*values), stored.size(), bytes);
    };
    arrange(column_order_, codes, columns_);
    arrange(of_groups, scales, columns_ / type_.group);
    arrange(of_groups, offsets, columns_ / type_.group);
  }

  const GgufType& type_;
  const std::byte* data_;
  size_t row_bytes_;
  GgufOrder order_, column_order_;
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
    const auto dtype =
        found->second.is_negated_exp ? kernels::Dtype::kF32 : *PlainDtype(tensor.type->name);
    return TensorInfo{name, dtype, tensor.shape, gguf_->FileOf(tensor).path()};
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, placed] : tensors_) names.push_back(name);
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    const Placed& placed = tensors_.at(info.name);
    if (placed.is_negated_exp) return Logarithms(placed, row, count, scratch);
    const size_t row_bytes = RowBytes(placed.tensor), element = kernels::SizeOf(info.dtype);
    const std::byte* data = gguf_->Data(placed.tensor);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % element == 0;
    if (IsAsStored(placed) && aligned) return data + row * row_bytes;
    scratch.resize(std::max(scratch.size(), count * row_bytes));
    for (size_t r = 0; r < count; ++r) {
      const std::byte* src = data + placed.rows.Stored(row + r) * row_bytes;
      std::byte* dst = scratch.data() + r * row_bytes;
      if (placed.columns.is_reordered())
        Arrange(placed.columns, src, element, row_bytes, dst);
      else
        std::memcpy(dst, src, row_bytes);
    }
    return scratch.data();
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    const Placed& placed = tensors_.at(info.name);
    const size_t row_bytes = RowBytes(placed.tensor);
    if (IsAsStored(placed))
      gguf_->FileOf(placed.tensor)
          .Release(placed.tensor.begin + row * row_bytes, count * row_bytes);
  }

 private:
  static bool IsAsStored(const Placed& placed) {
    return placed.rows.as_stored() && placed.columns.as_stored();
  }
  const std::byte* Logarithms(const Placed& placed, size_t row, size_t count,
                              std::vector<std::byte>& scratch) const {
    const StoredTensor stored{std::string(placed.tensor.type->name), placed.tensor.shape,
                              gguf_->Data(placed.tensor)};
    const size_t of_row = RowElements(placed.tensor.shape), first = row * of_row;
    scratch.resize(std::max(scratch.size(), count * of_row * sizeof(float)));
    auto* values = reinterpret_cast<float*>(scratch.data());
    for (size_t i = 0; i < count * of_row; ++i)
      values[i] = std::log(-FloatAt(stored, placed.rows.Stored(first + i)));
    return scratch.data();
  }

  std::shared_ptr<const GgufFile> gguf_;
  PlacedTensors tensors_;
};

// The part of the tensor in the file that a place names.
GgufTensor PartOf(GgufTensor tensor, const GgufPlace& place) {
  if (place.part >= 0) {
    tensor.bytes /= static_cast<uint64_t>(place.parts);
    tensor.begin += static_cast<uint64_t>(place.part) * tensor.bytes;
    tensor.shape.erase(tensor.shape.begin());
  }
  if (place.half >= 0) {
    tensor.bytes /= 2;
    tensor.begin += static_cast<uint64_t>(place.half) * tensor.bytes;
    tensor.shape.front() /= 2;
  }
  if (place.rows.run > 0) {  // it still begins where the whole does
    const size_t share = place.rows.stride / place.rows.run;
    tensor.bytes /= share;
    tensor.shape.front() /= static_cast<int64_t>(share);
  }
  return tensor;
}

bool IsOf(std::string_view module, std::string_view tensor) {
  return module == tensor.substr(0, tensor.rfind('.'));
}
bool IsOfDenseModule(std::string_view tensor) {
  return std::any_of(std::begin(kDenseModules), std::end(kDenseModules),
                     [&](std::string_view module) { return IsOf(module, tensor); });
}

std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// A vector may be stored as a matrix, of one row or of several (Mamba-2's norms of groups), and a
// matrix of one row as a vector; a convolution of each channel by itself as a matrix. Blocks lie
// along rows, so those keep their length.
bool Fits(const GgufTensor& stored, const std::vector<int64_t>& want) {
  if (!PlainDtype(stored.type->name))
    return WithoutOnes(stored.shape) == WithoutOnes(want) && stored.shape.back() == want.back();
  return WithoutOnes(stored.shape) == WithoutOnes(want) ||
         (want.size() == 1 && ElementCount(stored.shape) == ElementCount(want));
}

// Opens the tensors of a spec one by one.
class Opener {
 public:
  Opener(const GgufFile& gguf, const DecoderSpec& spec, const GgufArchitecture& architecture)
      : gguf_(gguf),
        is_classifier_(spec.classifier.labels > 0),
        places_(spec, architecture, gguf.header),
        list_(TensorList(spec)) {
    for (const GgufTensor& tensor : gguf.header.tensors) held_.emplace(tensor.name, &tensor);
    for (const TensorSpec& tensor : list_)
      if (const GgufPlace place = places_.Of(tensor.name); place.name.ends_with(".scale"))
        own_scales_.insert(place.name);
  }

  Status Open() {
    for (const TensorSpec& tensor : list_) {
      const GgufPlace place = places_.Of(tensor.name);
      const GgufTensor* stored = Held(place.name);
      if (!stored) continue;  // the check of all tensors names what is missing
      PINION_ASSIGN(const Placed placed, Check(*stored, place, tensor.shape));
      Add(tensor.name, placed);
    }
    for (const auto& [name, tensor] : held_) {  // those that the spec does not name
      const bool answers = !is_classifier_ && IsOf(kYesNoModule, name);
      if (!IsOfDenseModule(name) && !answers) continue;
      PINION_TRY(CheckType(*tensor, tensor->shape));
      if (name.ends_with(".weight")) PINION_TRY(RefuseGgufScale(gguf_, *tensor));
      Add(std::string(name), {*tensor});
    }
    return {};
  }
  PlacedTensors TakePlain() { return std::move(plain_); }
  QuantisedTensors TakeQuantised() { return std::move(quantised_); }

 private:
  // Falcon-H1's files leave out the suffix of a norm.
  const GgufTensor* Held(std::string_view name) const {
    constexpr std::string_view kSuffix = ".weight";
    auto found = held_.find(name);
    if (found == held_.end() && name.ends_with(kSuffix))
      found = held_.find(name.substr(0, name.size() - kSuffix.size()));
    return found == held_.end() ? nullptr : found->second;
  }
  void Add(const std::string& name, const Placed& placed) {
    if (PlainDtype(placed.tensor.type->name))
      plain_.emplace(name, placed);
    else
      quantised_.emplace(name, std::make_unique<GgufQuantised>(gguf_, placed));
  }

  Result<Placed> Check(GgufTensor stored, const GgufPlace& place, std::vector<int64_t> want) const {
    PINION_TRY(CheckType(stored, want));
    if (place.half >= 0) want.front() *= 2;
    if (place.rows.run > 0)
      want.front() *= static_cast<int64_t>(place.rows.stride / place.rows.run);
    if (place.part >= 0) want.insert(want.begin(), place.parts);
    if (!Fits(stored, want))
      return Fail(
          ErrorCode::kCorrupt,
          StrCat("tensor '", place.name, "' of ", gguf_.FileOf(stored).path(), " has shape ",
                 ShapeText(stored.shape), ", its metadata asks for ", ShapeText(want)));
    stored.shape = std::move(want);
    PINION_ASSIGN(const float scale, ScaleOf(stored, place.part));
    if (place.is_negated_exp) PINION_TRY(CheckNegated(stored));
    const size_t group = stored.type->group;
    if (place.columns.is_reordered() && group > 0 && place.columns.unit % group != 0)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("tensor '", place.name, "' of ", gguf_.FileOf(stored).path(), " is ",
                         stored.type->name, ", ", group, " of whose weights share a scale, but ",
                         place.columns.unit, " belong to a head; want a multiple"));
    return Placed{PartOf(stored, place), place.rows, place.columns, scale, place.is_negated_exp};
  }

  // The factor of a tensor's weights: 1 without a scale beside it, or if the spec names that. A
  // bias is not scaled.
  Result<float> ScaleOf(const GgufTensor& stored, int part) const {
    if (!stored.name.ends_with(".weight")) return 1.0f;
    const std::string name = GgufScaleName(stored.name);
    const auto scale = held_.find(name);
    if (scale == held_.end() || own_scales_.contains(name)) return 1.0f;
    return ReadGgufScale(gguf_, *scale->second, stored, part);
  }

  // Codes with scales are read by rows of a matrix, which vectors and convolutions are not.
  Status CheckType(const GgufTensor& stored, const std::vector<int64_t>& want) const {
    if (want.size() == 2 || PlainDtype(stored.type->name)) return {};
    return Fail(
        ErrorCode::kUnsupported,
        StrCat("tensor '", stored.name, "' of ", gguf_.FileOf(stored).path(), " is ",
               stored.type->name, ": a tensor that is not a matrix must be F32, F16 or BF16"));
  }

  // -exp(x) is below 0, or 0 if it is too small for a float.
  Status CheckNegated(const GgufTensor& stored) const {
    const StoredTensor values{std::string(stored.type->name), stored.shape, gguf_.Data(stored)};
    for (size_t i = 0; i < ElementCount(stored.shape); ++i)
      if (const float value = FloatAt(values, i); !(value <= 0))
        return Fail(ErrorCode::kCorrupt,
                    StrCat("tensor '", stored.name, "' of ", gguf_.FileOf(stored).path(), " holds ",
                           value, ", want 0 or less"));
    return {};
  }

  const GgufFile& gguf_;
  const bool is_classifier_;
  const GgufPlaces places_;
  const std::vector<TensorSpec> list_;
  std::map<std::string_view, const GgufTensor*> held_;
  std::set<std::string> own_scales_;  // the model's own, which are not factors of NVFP4
  PlacedTensors plain_;
  QuantisedTensors quantised_;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> OpenGgufTensors(std::shared_ptr<const GgufFile> gguf,
                                                      const DecoderSpec& spec) {
  PINION_ASSIGN(const GgufArchitecture* architecture, FindGgufArchitecture(gguf->header));
  Opener opener(*gguf, spec, *architecture);
  PINION_TRY(opener.Open());
  std::unique_ptr<TensorSource> source =
      WithQuantised(std::make_unique<GgufSource>(gguf, opener.TakePlain()), opener.TakeQuantised());
  if (spec.latent.kv_rank == 0) return source;
  return WithLatentRows(std::move(source), std::move(gguf), spec);
}

}  // namespace pinion
