#include <limits>

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

class ConvertTest : public ::testing::TestWithParam<Isa> {
 protected:
  // Converts with the ISA's function and compares the bits with the scalar reference's; NaN only
  // has to stay NaN.
  void Check(const std::byte* src, Dtype src_type, Dtype dst_type, size_t n) {
    Guarded<std::byte> got(n * SizeOf(dst_type)), want(n * SizeOf(dst_type));
    TableFor(GetParam()).convert(got.data(), dst_type, src, src_type, n);
    TableFor(Isa::kScalar).convert(want.data(), dst_type, src, src_type, n);
    for (size_t i = 0; i < n; ++i) {
      const size_t size = SizeOf(dst_type);
      if (std::isnan(Get(want.data(), dst_type, i))) {
        ASSERT_TRUE(std::isnan(Get(got.data(), dst_type, i))) << i;
      } else {
        ASSERT_EQ(std::memcmp(got.data() + i * size, want.data() + i * size, size), 0)
            << Name(src_type) << " to " << Name(dst_type) << ", element " << i << ": "
            << Get(src, src_type, i) << " became " << Get(got.data(), dst_type, i);
      }
    }
  }
};

TEST_P(ConvertTest, WidensAndMovesEveryPattern) {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  const auto* src = reinterpret_cast<const std::byte*>(patterns.data());
  for (Dtype src_type : {Dtype::kBf16, Dtype::kF16}) {
    for (Dtype dst_type : kDtypes) Check(src, src_type, dst_type, patterns.size());
  }
}

// Every value that either half type can hold, the midpoints between neighbours, and the floats on
// both sides of each.
TEST_P(ConvertTest, RoundsEveryTieAsTheReferenceDoes) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto next = static_cast<uint16_t>(bits + 1);
    for (const auto& [a, b] : {std::pair(ToFloat(Bf16{half}), ToFloat(Bf16{next})),
                               std::pair(ToFloat(F16{half}), ToFloat(F16{next}))}) {
      const auto middle = static_cast<float>((static_cast<double>(a) + b) / 2);
      for (float value : {a, middle}) {
        values.push_back(std::nextafter(value, -INFINITY));
        values.push_back(value);
        values.push_back(std::nextafter(value, INFINITY));
      }
    }
  }
  const auto* src = reinterpret_cast<const std::byte*>(values.data());
  for (Dtype dst_type : kDtypes) Check(src, Dtype::kF32, dst_type, values.size());
}

TEST_P(ConvertTest, TakesAnyLengthAndAlignment) {
  for (size_t n = 0; n <= 40; ++n) {
    for (Dtype src_type : kDtypes) {
      Guarded<std::byte> src(1 + n * SizeOf(src_type));
      const std::vector<float> values = Normal(n, 11);
      for (size_t i = 0; i < n; ++i) Set(src.data() + 1, src_type, i, values[i]);
      for (Dtype dst_type : kDtypes) Check(src.data() + 1, src_type, dst_type, n);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, ConvertTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
