#include "engine/checkpoint/packed.h"

#include <algorithm>
#include <cstring>

#include "engine/base/strings.h"
#include "engine/checkpoint/nvfp4.h"
#include "engine/checkpoint/unpack.h"

namespace pinion {
namespace {

int64_t Ceil(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
int64_t Signed(size_t value) { return static_cast<int64_t>(value); }

// The group of each column, as a tensor states it; empty if groups are consecutive columns, as in
// most files.
Result<std::vector<uint32_t>> ReadGroupIndex(const StoredTensors& tensors, const char* suffix,
                                             size_t columns, size_t group, size_t groups) {
  std::vector<uint32_t> group_of;
  if (!tensors.Find(suffix)) return group_of;
  PINION_ASSIGN(const StoredTensor order, tensors.Require(suffix, "I32", {Signed(columns)}));
  bool plain = true;
  for (size_t column = 0; column < columns; ++column) {
    const uint32_t of = WordAt(order.data, column);
    if (of >= groups)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", tensors.NameOf(suffix), "' holds ", static_cast<int32_t>(of),
                         ", want 0 to ", groups - 1));
    plain = plain && of == column / group;
    group_of.push_back(of);
  }
  if (plain) group_of.clear();
  return group_of;
}

// Codes of 8 bits are stored minus 128, so that they fit an int8.
CodeRange RangeOf(int bits) {
  if (bits == 8) return {-128, 127, true};
  return {0, 15, true};
}
int Bias(int bits) { return bits == 8 ? 128 : 0; }

// ---- AWQ and GPTQ: both store matrices transposed, [inputs][outputs], with one row of scales and
// one of zeros per group; weight = scale * (code - zero).
class Transposed : public QuantisedTensor {
 public:
  static Result<std::unique_ptr<QuantisedTensor>> Open(const QuantScheme& scheme,
                                                       const StoredTensors& tensors) {
    std::unique_ptr<Transposed> opened(new Transposed(scheme));
    PINION_TRY(opened->Read(tensors));
    return opened;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    if (awq_) {
      UnpackAwq(codes_.data, rows_, columns_, row, count, bias_, codes);
    } else {
      UnpackColumns(codes_.data, rows_, columns_, row, count, bits_, bias_, codes);
    }
    std::vector<int8_t> zeros(count * groups());
    ReadZeros(row, count, zeros.data());
    std::vector<float> run(count);
    for (size_t group = 0; group < groups(); ++group) {
      ReadFloats(scales_, group * rows_ + row, count, run.data());
      for (size_t r = 0; r < count; ++r) {
        const size_t at = r * groups() + group;
        scales[at] = run[r];
        offsets[at] = run[r] * static_cast<float>(-zeros[at]);
      }
    }
  }
  // Every page holds parts of many rows, so all are released with the last row. Threads that still
  // read other rows get them back from the page cache.
  void Release(size_t row, size_t count) const override {
    if (row + count == rows_) codes_.Release(0, codes_.bytes());
  }

 private:
  explicit Transposed(const QuantScheme& scheme)
      : awq_(scheme.method == QuantMethod::kAwq),
        gptq_v1_(scheme.gptq_v1),
        bits_(scheme.bits),
        stated_group_(scheme.group) {}

  Status Read(const StoredTensors& tensors) {
    const int64_t in_word = 32 / bits_;
    PINION_ASSIGN(codes_, tensors.RequireMatrix("qweight", "I32"));
    // AWQ packs along the outputs, GPTQ along the inputs.
    columns_ = static_cast<size_t>(codes_.shape[0] * (awq_ ? 1 : in_word));
    rows_ = static_cast<size_t>(codes_.shape[1] * (awq_ ? in_word : 1));
    group_ = stated_group_ < 0 ? columns_ : static_cast<size_t>(stated_group_);
    range_ = RangeOf(bits_);
    bias_ = Bias(bits_);
    const int64_t groups = Signed(this->groups()), rows = Signed(rows_);
    PINION_ASSIGN(scales_, tensors.RequireFloats("scales", {groups, rows}));
    PINION_ASSIGN(zeros_, tensors.Require("qzeros", "I32", {groups, Ceil(rows, in_word)}));
    format_ = StrCat(awq_ ? "AWQ int" : "GPTQ int", bits_);
    stored_bytes_ = codes_.bytes() + scales_.bytes() + zeros_.bytes();
    if (!awq_) {
      TakeCommonZero();
      PINION_ASSIGN(group_of_, ReadGroupIndex(tensors, "g_idx", columns_, group_, this->groups()));
    }
    return {};
  }

  // Symmetric checkpoints store the same zero throughout. Subtracted from the codes instead, it
  // leaves no offsets to store and multiply.
  void TakeCommonZero() {
    const int zero = ZeroAt(0, 0), highest = (1 << bits_) - 1 - zero;
    for (size_t group = 0; group < groups(); ++group)
      for (size_t row = 0; row < rows_; ++row)
        if (ZeroAt(group, row) != zero) return;
    if (zero > 128 || highest > 127) return;
    bias_ = zero;
    range_ = {-zero, highest, false};
  }

  // zeros [count][groups()], minus the bias that is subtracted from the codes.
  void ReadZeros(size_t row, size_t count, int8_t* zeros) const {
    if (awq_) return UnpackAwq(zeros_.data, rows_, groups(), row, count, bias_, zeros);
    for (size_t r = 0; r < count; ++r)
      for (size_t group = 0; group < groups(); ++group)
        *zeros++ = static_cast<int8_t>(ZeroAt(group, row + r) - bias_);
  }

  // The bit position of output `row` in a word that packs outputs, which AWQ interleaves.
  int ShiftOf(size_t row) const {
    const size_t in_word = static_cast<size_t>(32 / bits_), at = row % in_word;
    return bits_ * (awq_ ? kAwqPlace[at] : static_cast<int>(at));
  }
  int Unpack(uint32_t word, int shift) const {
    return static_cast<int>(word >> shift & ((1u << bits_) - 1));
  }
  int ZeroAt(size_t group, size_t row) const {
    const auto in_word = static_cast<size_t>(32 / bits_);
    const size_t words = (rows_ + in_word - 1) / in_word;
    const int stored = Unpack(WordAt(zeros_.data, group * words + row / in_word), ShiftOf(row));
    // Version 1 subtracts one before packing, so a zero of 0 is stored as the largest code.
    return gptq_v1_ ? (stored + 1) & ((1 << bits_) - 1) : stored;
  }

  bool awq_, gptq_v1_;
  int bits_, bias_ = 0;  // bias: subtracted from stored codes
  int64_t stated_group_;
  StoredTensor codes_, scales_, zeros_;
};

// ---- compressed-tensors: matrices [outputs][inputs]; weight = scale * (code - zero).
class CompressedTensors : public QuantisedTensor {
 public:
  static Result<std::unique_ptr<QuantisedTensor>> Open(const QuantScheme& scheme,
                                                       const StoredTensors& tensors) {
    std::unique_ptr<CompressedTensors> opened(new CompressedTensors(scheme));
    PINION_TRY(opened->Read(tensors));
    return opened;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    for (size_t r = 0; r < count; ++r) ReadCodes(row + r, codes + r * columns_);
    const size_t n = count * groups();
    if (one_scale_) {
      std::fill_n(scales, n, FloatAt(scales_, 0));
    } else {
      ReadFloats(scales_, row * groups(), n, scales);
    }
    std::fill_n(offsets, n, 0.0f);
    for (size_t i = 0; range_.has_offsets && i < n; ++i)
      offsets[i] = -scales[i] * static_cast<float>(ZeroAt(row + i / groups(), i % groups()));
  }
  void Release(size_t row, size_t count) const override {
    const size_t row_bytes = codes_.bytes() / rows_;
    codes_.Release(row * row_bytes, count * row_bytes);
  }

 private:
  explicit CompressedTensors(const QuantScheme& scheme)
      : packed_(scheme.method == QuantMethod::kPackQuantized),
        bits_(scheme.bits),
        stated_group_(scheme.group) {}

  Status Read(const StoredTensors& tensors) {
    PINION_ASSIGN(codes_, tensors.RequireMatrix(packed_ ? "weight_packed" : "weight",
                                                packed_ ? "I32" : "I8"));
    rows_ = static_cast<size_t>(codes_.shape[0]);
    columns_ = static_cast<size_t>(codes_.shape[1]);
    if (packed_) PINION_TRY(ReadPackedShape(tensors));
    group_ = stated_group_ < 0 ? columns_ : static_cast<size_t>(stated_group_);
    range_ = bits_ == 8 ? CodeRange{-128, 127, false} : CodeRange{-8, 7, false};
    PINION_ASSIGN(const StoredTensor scales, tensors.Require("weight_scale"));
    one_scale_ = scales.shape == std::vector<int64_t>{1};
    const std::vector<int64_t> shape{Signed(rows_), Signed(groups())};
    PINION_ASSIGN(scales_,
                  tensors.RequireFloats("weight_scale", one_scale_ ? scales.shape : shape));
    PINION_TRY(ReadZeros(tensors));
    format_ = StrCat("compressed-tensors int", bits_);
    stored_bytes_ = codes_.bytes() + scales_.bytes() + zeros_.bytes();
    PINION_ASSIGN(group_of_,
                  ReadGroupIndex(tensors, "weight_g_idx", columns_, group_, this->groups()));
    return {};
  }

  Status ReadPackedShape(const StoredTensors& tensors) {
    PINION_ASSIGN(const StoredTensor shape, tensors.Require("weight_shape", "I64", {2}));
    int64_t stated[2];
    std::memcpy(stated, shape.data, sizeof(stated));
    if (stated[0] != codes_.shape[0] || stated[1] < 1 ||
        Ceil(stated[1], 32 / bits_) != codes_.shape[1])
      return Fail(ErrorCode::kCorrupt,
                  StrCat("tensor '", tensors.NameOf("weight_shape"), "' says ", stated[0], " x ",
                         stated[1], ", which does not pack into ", ShapeText(codes_.shape)));
    columns_ = static_cast<size_t>(stated[1]);
    return {};
  }

  // Symmetric checkpoints have no zero points; newer files pack them along the outputs.
  Status ReadZeros(const StoredTensors& tensors) {
    auto zeros = tensors.Find("weight_zero_point");
    if (!zeros) return {};
    zeros_packed_ = zeros->dtype == "I32";
    const int64_t rows = Signed(rows_), groups = Signed(this->groups());
    if (zeros_packed_) {
      PINION_ASSIGN(zeros_,
                    tensors.Require("weight_zero_point", "I32", {Ceil(rows, 32 / bits_), groups}));
    } else {
      const auto shape = one_scale_ ? zeros->shape : std::vector<int64_t>{rows, groups};
      PINION_ASSIGN(zeros_, tensors.Require("weight_zero_point", "I8", shape));
    }
    range_.has_offsets = true;
    return {};
  }

  void ReadCodes(size_t row, int8_t* codes) const {
    if (!packed_) {
      std::memcpy(codes, codes_.data + row * columns_, columns_);
      return;
    }
    const auto in_word = static_cast<size_t>(32 / bits_);
    const size_t words = (columns_ + in_word - 1) / in_word;
    UnpackRow(codes_.data + row * words * sizeof(uint32_t), columns_, bits_, 1 << (bits_ - 1),
              codes);
  }
  // Packed codes are stored with their lowest value at 0.
  int8_t Unbiased(uint32_t word, size_t place) const {
    const auto code =
        static_cast<int>(word >> (place * static_cast<size_t>(bits_)) & ((1u << bits_) - 1));
    return static_cast<int8_t>(code - (1 << (bits_ - 1)));
  }
  int ZeroAt(size_t row, size_t group) const {
    const auto in_word = static_cast<size_t>(32 / bits_);
    if (zeros_packed_)
      return Unbiased(WordAt(zeros_.data, row / in_word * groups() + group), row % in_word);
    return static_cast<int8_t>(zeros_.data[one_scale_ ? 0 : row * groups() + group]);
  }

  bool packed_, one_scale_ = false, zeros_packed_ = false;
  int bits_;
  int64_t stated_group_;
  StoredTensor codes_, scales_, zeros_;
};

// The only value of a tensor of that name and shape.
Result<float> ReadScale(const StoredTensors& tensors, const char* name,
                        const std::vector<int64_t>& shape) {
  PINION_ASSIGN(const StoredTensor stored, tensors.RequireFloats(name, shape));
  const float scale = FloatAt(stored, 0);
  if (scale > 0 && scale < 1e30f) return scale;
  return Fail(ErrorCode::kCorrupt, StrCat("tensor '", tensors.NameOf(name), "' holds ", scale,
                                          ", want a positive number"));
}

}  // namespace

Result<std::unique_ptr<QuantisedTensor>> OpenQuantised(const QuantScheme& scheme,
                                                       const std::string& module,
                                                       const StoredLookup& lookup) {
  const StoredTensors tensors(module, lookup);
  switch (scheme.method) {
    case QuantMethod::kIntQuantized:
      if (const auto weight = tensors.Find("weight"); weight && weight->dtype != "I8")
        return nullptr;
      return CompressedTensors::Open(scheme, tensors);
    case QuantMethod::kPackQuantized:
      if (tensors.Find("weight")) return nullptr;
      return CompressedTensors::Open(scheme, tensors);
    case QuantMethod::kAwq:
    case QuantMethod::kGptq:
      if (tensors.Find("weight")) return nullptr;
      return Transposed::Open(scheme, tensors);
    case QuantMethod::kNvfp4:
      return OpenNvfp4(module, lookup);
    case QuantMethod::kFp8:    // not integers: fp8.h
    case QuantMethod::kMxfp4:  // not linears: mxfp4.h
      return nullptr;
  }
  __builtin_unreachable();
}

Result<StaticRounding> ReadStaticRounding(const std::string& module, const StoredLookup& lookup) {
  const StoredTensors tensors(module, lookup);
  PINION_ASSIGN(const float scale, ReadScale(tensors, "input_scale", {1}));
  StaticRounding rounding{scale, 0};
  if (tensors.Find("input_zero_point")) {
    PINION_ASSIGN(const StoredTensor zero, tensors.Require("input_zero_point", "I8", {1}));
    int8_t stored = 0;
    std::memcpy(&stored, zero.data, sizeof(stored));
    rounding.zero_point = int{stored};
  }
  return rounding;
}

Result<std::optional<float>> ReadInputScale(const std::string& module, const StoredLookup& lookup) {
  const StoredTensors tensors(module, lookup);
  for (const char* name : {"input_scale", "activation_scale"}) {
    const auto stored = tensors.Find(name);
    if (!stored) continue;
    // A number of its own has no dimension, or one.
    const auto shape = stored->shape.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{1};
    PINION_ASSIGN(const float scale, ReadScale(tensors, name, shape));
    return std::optional(scale);
  }
  return std::optional<float>();
}

}  // namespace pinion
