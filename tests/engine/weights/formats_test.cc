#include "engine/weights/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/quantised.h"
#include "engine/weights/weight_layout.h"
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

// All linears in e4m3, with these numbers beside them.
class Fp8 : public Mixed {
 public:
  explicit Fp8(std::map<std::string, float> scales)
      : Mixed(kE4m3), gate_(kE4m3, 64), scales_(std::move(scales)) {}

  const QuantisedTensor* Quantised(const std::string& name) const override {
    return name.find("_proj") != std::string::npos ? &gate_ : nullptr;
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    const auto found = scales_.find(name);
    if (found == scales_.end()) return {};
    return StoredTensor{"F32", {}, reinterpret_cast<const std::byte*>(&found->second)};
  }

 private:
  static constexpr CodeRange kE4m3 = {.lowest = -128, .highest = 127, .e4m3 = true};
  Header gate_;
  std::map<std::string, float> scales_;
};

QuantScheme Fp8Scheme(ActivationRounding activations, int64_t group = 0) {
  QuantScheme scheme;
  scheme.method = QuantMethod::kFp8;
  scheme.activations = activations;
  scheme.activation_group = group;
  return scheme;
}

FormatPlan PlanFp8(std::map<std::string, float> scales, const std::optional<QuantScheme>& scheme) {
  const auto spec = FindModel(StrCat(tests::TestData(), "/models/llama")).value().spec;
  return PlanFormats(spec, Fp8(std::move(scales)), scheme, kInt8).value();
}

TEST(Fp8Activations, AreRoundedIfTheSchemeAsks) {
  const auto dynamic = PlanFp8({}, Fp8Scheme(ActivationRounding::kPerToken, 128));
  EXPECT_EQ(dynamic.CountRoundedToE4m3(), dynamic.formats().size());
  const auto& rounding = dynamic.Find(0, MatrixRole::kQkv)->e4m3_rounding;
  ASSERT_TRUE(rounding);
  EXPECT_EQ(rounding->group, 128u);
  EXPECT_EQ(rounding->scale, 0);
  EXPECT_EQ(PlanFp8({}, Fp8Scheme(ActivationRounding::kNone)).CountRoundedToE4m3(), 0u);
  EXPECT_EQ(PlanFp8({}, {}).CountRoundedToE4m3(), 0u);  // --activations float
}

// Matrices with the same input are multiplied together.
TEST(Fp8Activations, TakeTheLargestStaticScaleOfAMatrixsParts) {
  const std::string layer = "model.layers.0.";
  const auto plan = PlanFp8({{layer + "mlp.gate_proj.input_scale", 0.5f},
                             {layer + "mlp.up_proj.input_scale", 0.25f},
                             {layer + "mlp.down_proj.activation_scale", 0.125f}},
                            Fp8Scheme(ActivationRounding::kStatic));
  EXPECT_EQ(plan.Find(0, MatrixRole::kMlpIn)->e4m3_rounding->scale, 0.5f);
  EXPECT_EQ(plan.Find(0, MatrixRole::kDown)->e4m3_rounding->scale, 0.125f);
  EXPECT_FALSE(plan.Find(0, MatrixRole::kQkv)->e4m3_rounding) << "it has none";
}

TEST(Fp8Activations, ABrokenStaticScaleIsNamed) {
  const auto spec = FindModel(StrCat(tests::TestData(), "/models/llama")).value().spec;
  for (const float broken : {0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    const auto plan = PlanFormats(spec, Fp8({{"model.layers.1.mlp.down_proj.input_scale", broken}}),
                                  Fp8Scheme(ActivationRounding::kStatic), kInt8);
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message,
                ::testing::HasSubstr("'model.layers.1.mlp.down_proj.input_scale' holds"));
  }
}

// A head that is rounded to int8 here is not the checkpoint's.
TEST(Fp8Activations, LeaveIntegersBesideThemTheirOutliers) {
  const auto spec = FindModel(StrCat(tests::TestData(), "/models/llama")).value().spec;
  const auto plan =
      PlanFormats(spec, Mixed({-128, 127, false}), Fp8Scheme(ActivationRounding::kPerToken), kInt8)
          .value();
  const IntegerFormat* down = plan.Find(0, MatrixRole::kDown);
  EXPECT_EQ(down->product, IntegerProduct::kInt8);
  EXPECT_TRUE(down->outliers_apart);
  EXPECT_FALSE(down->e4m3_rounding);
}

TEST(Fp8Activations, OfARankAreGroupedAsInTheWholeMatrix) {
  const auto plan = PlanFp8({}, Fp8Scheme(ActivationRounding::kPerToken, 128));
  const PackedMatrix share =
      MatrixOf(kernels::Dtype::kBf16, 64, {192, 384}, plan.Find(0, MatrixRole::kDown));
  EXPECT_EQ(share.e4m3_rounding->first, 192u);
  EXPECT_EQ(share.e4m3_rounding->group, 128u);
  EXPECT_TRUE(share.prepares());
  EXPECT_FALSE(share.rounds()) << "it is int8 that this asks for";
}

// Keys and values are made of the latents in the cache, which are therefore rounded.
TEST(Fp8Activations, OfLatentAttentionIncludeTheLatents) {
  const auto files = FindModel(StrCat(tests::TestData(), "/quantised/deepseekv3-fp8")).value();
  const auto weights = OpenWeights(files).value();
  const auto plan = PlanFormats(files.spec, *weights, files.scheme, {}).value();
  ASSERT_EQ(plan.latent_roundings.size(), static_cast<size_t>(files.spec.layers));
  EXPECT_EQ(plan.latent_roundings.at(0).group, 128u);
  EXPECT_TRUE(PlanFormats(files.spec, *weights, {}, {}).value().latent_roundings.empty());
}

}  // namespace
}  // namespace pinion
