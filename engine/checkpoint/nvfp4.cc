#include "engine/checkpoint/nvfp4.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/checkpoint/e2m1.h"
#include "kernels/types.h"

namespace pinion {
namespace {

constexpr int64_t kNvfp4Group = 16;

class Nvfp4Tensor : public QuantisedTensor {
 public:
  Nvfp4Tensor(StoredTensor codes, StoredTensor scales, float scale_unit)
      : codes_(std::move(codes)), scales_(std::move(scales)) {
    rows_ = static_cast<size_t>(codes_.shape[0]);
    columns_ = static_cast<size_t>(codes_.shape[1]) * 2;
    group_ = kNvfp4Group;
    range_ = {-12, 12, false, kernels::ScaleType::kE4m3};
    scale_unit_ = scale_unit;
    format_ = "NVFP4";
    stored_bytes_ = codes_.bytes() + scales_.bytes() + sizeof(float);
  }

  void Read(size_t row, size_t count, int8_t* codes, float* scales, float* offsets) const override {
    UnpackE2m1(codes_.data + row * columns_ / 2, count * columns_ / 2, codes);
    for (size_t i = 0; i < count * groups(); ++i) {
      const kernels::E4m3 stored{std::to_integer<uint8_t>(scales_.data[row * groups() + i])};
      scales[i] = kernels::ToFloat(stored) * scale_unit_;
    }
    std::fill_n(offsets, count * groups(), 0.0f);
  }
  void Release(size_t row, size_t count) const override {
    codes_.Release(row * columns_ / 2, count * columns_ / 2);
  }

 private:
  StoredTensor codes_, scales_;
};

// The scale of the whole matrix, which files have as [1] or as a number without a shape.
Result<float> ReadWhole(const StoredTensors& tensors, const char* suffix) {
  PINION_ASSIGN(const StoredTensor any, tensors.Require(suffix));
  const bool plain = any.shape.empty();
  PINION_ASSIGN(
      const StoredTensor stored,
      tensors.Require(suffix, "F32", plain ? std::vector<int64_t>{} : std::vector<int64_t>{1}));
  const float scale = FloatAt(stored, 0);
  if (scale > 0 && scale < 1e30f && std::isfinite(1 / scale)) return scale;
  return Fail(ErrorCode::kCorrupt, StrCat("tensor '", tensors.NameOf(suffix), "' holds ", scale,
                                          ", want a positive number with a finite inverse"));
}

}  // namespace

Result<std::unique_ptr<QuantisedTensor>> OpenNvfp4(const std::string& module,
                                                   const StoredLookup& lookup) {
  const StoredTensors tensors(module, lookup);
  const auto plain = tensors.Find("weight");
  if (plain && plain->dtype != "U8") return nullptr;
  PINION_ASSIGN(const StoredTensor codes,
                tensors.RequireMatrix(plain ? "weight" : "weight_packed", "U8"));
  const int64_t inputs = codes.shape[1] * 2;
  if (inputs % kNvfp4Group != 0)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'", module, "' has ", inputs, " inputs, want a multiple of 16 in NVFP4"));
  PINION_ASSIGN(const StoredTensor scales,
                tensors.Require("weight_scale", "F8_E4M3", {codes.shape[0], inputs / kNvfp4Group}));
  PINION_ASSIGN(const float whole,
                ReadWhole(tensors, plain ? "weight_scale_2" : "weight_global_scale"));
  const float unit = (plain ? whole : 1 / whole) / 2;  // codes are twice the values
  return std::make_unique<Nvfp4Tensor>(codes, scales, unit);
}

}  // namespace pinion
