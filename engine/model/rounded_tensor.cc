#include "engine/model/rounded_tensor.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/model/quantised_source.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// Scales of 4-bit formats are published in float16.
float RoundScale(float scale, int bits) {
  return bits == 8 ? scale : kernels::ToFloat(kernels::ToF16(scale));
}

class RoundedTensor : public QuantisedTensor {
 public:
  RoundedTensor(const TensorSource& source, const TensorInfo& info, const RoundingScheme& scheme)
      : source_(source), info_(info), scheme_(scheme) {
    rows_ = static_cast<size_t>(info.shape.at(0));
    columns_ = static_cast<size_t>(info.shape.at(1));
    group_ = scheme.group == 0 ? columns_ : scheme.group;
    const int codes = 1 << scheme.bits;
    range_ = scheme.symmetric ? CodeRange{-codes / 2, codes / 2 - 1, false}
                              : CodeRange{0, codes - 1, true};
    format_ = StrCat("int", scheme.bits, ", rounded");
    stored_bytes_ = rows_ * columns_ * static_cast<uint64_t>(scheme.bits) / 8;
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    std::vector<std::byte> scratch;
    std::vector<float> values(columns_);
    for (size_t r = 0; r < count; ++r) {
      const std::byte* src = source_.Rows(info_, row + r, 1, scratch);
      kernels::Convert(reinterpret_cast<std::byte*>(values.data()), kernels::Dtype::kF32, src,
                       info_.dtype, columns_);
      for (size_t group = 0; group < groups(); ++group) {
        const size_t begin = group * group_, end = std::min(columns_, begin + group_);
        const size_t at = r * groups() + group;
        RoundGroup(values.data() + begin, end - begin, codes + r * columns_ + begin, scales[at],
                   offsets[at]);
      }
    }
  }

 private:
  void RoundGroup(const float* values, size_t n, int8_t* codes, float& scale, float& offset) const {
    const auto [least, most] = std::minmax_element(values, values + n);
    const float low = std::min(*least, 0.0f), high = std::max(*most, 0.0f);
    const auto highest = static_cast<float>(range_.highest);
    scale = scheme_.symmetric ? std::max(-low, high) / highest : (high - low) / highest;
    scale = RoundScale(scale, scheme_.bits);
    if (!(scale > 0)) scale = 1;
    const float zero = scheme_.symmetric ? 0 : std::nearbyint(-low / scale);
    offset = -scale * zero;
    for (size_t i = 0; i < n; ++i) {
      const float code = std::nearbyint(values[i] / scale) + zero;
      codes[i] = static_cast<int8_t>(std::clamp(code, static_cast<float>(range_.lowest), highest));
    }
  }

  const TensorSource& source_;
  TensorInfo info_;
  RoundingScheme scheme_;
};

// Everything as `source` has it, but for the integers of the head.
class Int8HeadSource : public TensorSource {
 public:
  Int8HeadSource(std::unique_ptr<TensorSource> source, std::string head)
      : source_(std::move(source)), head_(std::move(head)) {
    if (source_->Quantised(head_)) return;
    if (const auto info = source_->Find(head_)) rounded_ = RoundTensor(*source_, *info, {});
  }
  Result<TensorInfo> Find(const std::string& name) const override { return source_->Find(name); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    return source_->Rows(info, row, count, scratch);
  }
  const QuantisedTensor* Quantised(const std::string& name) const override {
    return name == head_ && rounded_ ? rounded_.get() : source_->Quantised(name);
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    return source_->Stored(name);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    source_->Release(info, row, count);
  }

 private:
  std::unique_ptr<TensorSource> source_;
  std::string head_;
  std::unique_ptr<QuantisedTensor> rounded_;
};

}  // namespace

std::unique_ptr<QuantisedTensor> RoundTensor(const TensorSource& source, const TensorInfo& info,
                                             const RoundingScheme& scheme) {
  return std::make_unique<RoundedTensor>(source, info, scheme);
}

Result<QuantScheme> MadeUpScheme(const std::string& name) {
  constexpr int64_t kGroup = 128;  // what published checkpoints have
  if (name == "w8a8")
    return QuantScheme{QuantMethod::kIntQuantized, 8, -1, false, ActivationRounding::kPerToken};
  if (name == "awq")
    return QuantScheme{QuantMethod::kAwq, 4, kGroup, false, ActivationRounding::kNone};
  if (name == "gptq")
    return QuantScheme{QuantMethod::kGptq, 4, kGroup, false, ActivationRounding::kNone};
  return Fail(ErrorCode::kUsage, StrCat("scheme '", name, "' is unknown, want w8a8, awq or gptq"));
}

Result<std::unique_ptr<TensorSource>> RoundLinears(std::unique_ptr<TensorSource> plain,
                                                   const DecoderSpec& spec,
                                                   const QuantScheme& scheme) {
  RoundingScheme rounding;
  rounding.bits = scheme.bits;
  rounding.group = scheme.group < 0 ? 0 : static_cast<size_t>(scheme.group);
  rounding.symmetric = scheme.method != QuantMethod::kAwq;
  QuantisedTensors rounded;
  for (const std::string& name : LinearWeights(spec)) {
    PINION_ASSIGN(const TensorInfo info, plain->Find(name));
    rounded.emplace(name, RoundTensor(*plain, info, rounding));
  }
  return WithQuantised(std::move(plain), std::move(rounded));
}

std::unique_ptr<TensorSource> WithInt8Head(std::unique_ptr<TensorSource> source,
                                           const DecoderSpec& spec) {
  const std::string& head = spec.tied_head ? spec.names.embedding : spec.names.head;
  return std::make_unique<Int8HeadSource>(std::move(source), head);
}

}  // namespace pinion
