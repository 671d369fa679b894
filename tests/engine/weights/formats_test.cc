#include "engine/weights/formats.h"

#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/quantised.h"
#include "engine/weights/weights.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

// The headers of a quantised matrix; nobody reads its rows.
class Header : public QuantisedTensor {
 public:
  Header(CodeRange range, size_t columns) {
    rows_ = 1;
    columns_ = columns;
    group_ = 32;
    range_ = range;
  }
  void Read(size_t, size_t, int8_t*, float*, float*) const override {}
};

// A checkpoint whose gates are MXFP4 and whose other tensors named *_proj are in `rest`.
class Mixed : public TensorSource {
 public:
  explicit Mixed(CodeRange rest)
      : gate_({-12, 12, false, kernels::ScaleType::kPower}, 64), rest_(rest, 64) {}

  Result<TensorInfo> Find(const std::string&) const override { return TensorInfo{}; }
  std::vector<std::string> Names() const override { return {}; }
  const std::byte* Rows(const TensorInfo&, size_t, size_t, std::vector<std::byte>&) const override {
    return nullptr;
  }
  const QuantisedTensor* Quantised(const std::string& name) const override {
    if (name.find("gate_proj") != std::string::npos) return &gate_;
    return name.find("_proj") != std::string::npos ? &rest_ : nullptr;
  }
  void Release(const TensorInfo&, size_t, size_t) const override {}

 private:
  Header gate_, rest_;
};

const FormatChoices kInt8 = {kernels::Dtype::kBf16, IntegerProduct::kInt8};

IntegerFormat MlpIn(CodeRange rest) {
  const auto spec = FindModel(StrCat(tests::TestData(), "/models/llama")).value().spec;
  const auto plan = PlanFormats(spec, Mixed(rest), {}, kInt8).value();
  return *plan.Find(0, MatrixRole::kMlpIn);
}

// GGUF files mix types: gate and up share a matrix in memory, and its form must hold both.
TEST(Formats, AMatrixIsMxfp4OnlyIfAllItsTensorsAre) {
  const IntegerFormat pure = MlpIn({-12, 12, false, kernels::ScaleType::kPower});
  EXPECT_TRUE(pure.e2m1());
  EXPECT_EQ(pure.bits, 4);
  EXPECT_EQ(pure.group, 32);
  const IntegerFormat mixed = MlpIn({-128, 127, false});
  EXPECT_FALSE(mixed.e2m1());
  EXPECT_EQ(mixed.bits, 8);
  EXPECT_EQ(mixed.lowest, -128);
  const IntegerFormat both = MlpIn({-12, 12, false, kernels::ScaleType::kE4m3});
  EXPECT_FALSE(both.e2m1());
  EXPECT_EQ(both.bits, 8);
  EXPECT_EQ(both.lowest, -12);
}

// Bytes of e4m3 are not numbers that other codes could be widened to.
TEST(Formats, AMatrixIsFp8OnlyIfAllItsTensorsAre) {
  const CodeRange e4m3{-128, 127, false, kernels::ScaleType::kF16, true};
  const auto spec = FindModel(StrCat(tests::TestData(), "/models/llama")).value().spec;
  const auto mixed = PlanFormats(spec, Mixed(e4m3), {}, kInt8).value();
  EXPECT_EQ(mixed.Find(0, MatrixRole::kMlpIn), nullptr);
  const IntegerFormat* down = mixed.Find(0, MatrixRole::kDown);
  ASSERT_NE(down, nullptr);
  EXPECT_TRUE(down->e4m3());
  EXPECT_EQ(down->bits, 8);
  EXPECT_EQ(down->lowest, 0);
  EXPECT_FALSE(down->outliers_apart);
}

// All of latent attention's matrices but those between a head's space and the latent's.
TEST(Formats, LatentAttentionStaysInFp8) {
  const auto files = FindModel(StrCat(tests::TestData(), "/quantised/deepseekv3-fp8")).value();
  const auto plan = PlanFormats(files.spec, *OpenWeights(files).value(), files.scheme, {}).value();
  for (const MatrixRole role : {MatrixRole::kQkv, MatrixRole::kQueryUp, MatrixRole::kO}) {
    ASSERT_NE(plan.Find(0, role), nullptr);
    EXPECT_TRUE(plan.Find(0, role)->e4m3());
  }
  EXPECT_EQ(plan.Find(0, MatrixRole::kLatentUp), nullptr);
  EXPECT_NE(plan.Find(1, MatrixRole::kExpertIn), nullptr);
  EXPECT_EQ(plan.dequantised, 0u);
}

}  // namespace
}  // namespace pinion
