#include <algorithm>
#include <cstring>

#include "kernels/integer.h"
#include "tests/kernels/integer_problem.h"

namespace pinion::kernels::testing {
namespace {

class OutliersTest : public ::testing::TestWithParam<Isa> {
 protected:
  const IntTable& table() const { return IntTableFor(GetParam()); }
  const IntTable& scalar() const { return IntTableFor(Isa::kScalar); }
};

// Layouts with room for outliers: whole rows and groups, with and without offsets.
const IntLayout kApart[] = {
    {8, 200, 200, -128, false, ScaleType::kF16, 8}, {4, 1100, 1100, -8, false, ScaleType::kF16, 17},
    {4, 96, 32, -8, false, ScaleType::kF16, 8},     {4, 256, 128, 0, true, ScaleType::kF16, 8},
    {8, 96, 32, -128, false, ScaleType::kF16, 8},   {8, 80, 16, -32, true, ScaleType::kF16, 8},
    {4, 96, 32, -12, false, ScaleType::kPower, 8},  {4, 96, 16, -12, false, ScaleType::kE4m3, 8}};

// Spikes in every place of a word, the last column and each row's own among them.
struct WithSpikes : IntProblem {
  WithSpikes(const IntLayout& layout, size_t rows, size_t spikes) : IntProblem(layout, rows, 2) {
    for (size_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < spikes; ++i)
        x[row * layout.k + (i + 1 == spikes ? layout.k - 1 : (i * 9 + row * 13) % layout.k)] =
            i % 2 ? -300.0f : 250.0f;
  }
};

TEST_P(OutliersTest, FewOutliersDoNotWidenTheStepsOfTheRest) {
  for (const IntLayout& layout : kApart) {
    const WithSpikes p(layout, 3, layout.outliers / 2);
    const auto x = p.Rounded(table(), {});
    ASSERT_EQ(x, p.Rounded(scalar(), {})) << "k " << layout.k;
    for (size_t row = 0; row < p.rows; ++row) {
      const std::byte* q = x.data() + row * layout.row_bytes();
      float scale;
      uint32_t count;
      std::memcpy(&scale, q + layout.columns(), sizeof(scale));
      std::memcpy(&count, q + layout.outliers_at(), sizeof(count));
      EXPECT_LE(scale * 127, 5) << "the rest is normal: 5 deviations";
      ASSERT_GE(count, layout.outliers / 2);
      ASSERT_LE(count, layout.outliers);
      // Values that stay in the row are within half a step, the others are kept unchanged.
      std::vector<float> kept(layout.k, 0);
      for (uint32_t i = 0; i < count; ++i) {
        Outlier outlier;
        std::memcpy(&outlier, q + layout.outliers_at() + 4 + i * sizeof(outlier), sizeof(outlier));
        kept[outlier.column] = outlier.value;
        EXPECT_EQ(static_cast<int8_t>(q[outlier.column]), 0);
      }
      for (size_t k = 0; k < layout.k; ++k) {
        const float value = p.x[row * layout.k + k];
        const float found = kept[k] + scale * static_cast<float>(static_cast<int8_t>(q[k]));
        ASSERT_NEAR(found, value, kept[k] != 0 ? 0 : scale * 0.5001f);
      }
    }
  }
}

TEST_P(OutliersTest, MoreThanFewLargeValuesAreRoundedWithTheRest) {
  const IntLayout layout{4, 256, 128, 0, true, ScaleType::kF16, 8};
  IntLayout plain = layout;
  plain.outliers = 0;
  for (const size_t spikes : {size_t{0}, size_t{9}}) {
    const auto x = WithSpikes(layout, 1, spikes).Rounded(table(), {});
    const auto want = WithSpikes(plain, 1, spikes).Rounded(scalar(), {});
    EXPECT_TRUE(std::equal(want.begin(), want.begin() + static_cast<ptrdiff_t>(layout.columns()),
                           x.begin()))
        << spikes;
    EXPECT_EQ(x[layout.outliers_at()], std::byte{0});
  }
}

TEST_P(OutliersTest, OutliersAreMultipliedAsTheScalarTableDoes) {
  for (const IntLayout& layout : kApart) {
    for (size_t rows : {1, 2, 5, 13, 101}) {
      const WithSpikes p(layout, rows, layout.outliers / 2);
      const auto x = p.Rounded(scalar(), {});
      const auto got = Multiply(table(), p, x), want = Multiply(scalar(), p, x);
      if (layout.whole_rows() || (layout.e2m1() && !SumsFloats(GetParam(), layout, rows))) {
        ASSERT_EQ(got, want) << "bits " << layout.bits << ", rows " << rows;
        continue;
      }
      for (size_t row = 0; row < rows; ++row)
        for (size_t n = 0; n < 128; ++n) {
          double exact = 0, magnitude = 0, rounded = 0;
          for (size_t k = 0; k < layout.k; ++k) {
            const double value = p.x[row * layout.k + k];
            const size_t group = n * layout.groups() + k / layout.group;
            exact += value * p.Weight(n, k);
            rounded += std::abs(p.Weight(n, k)) * 5 / 127 / 2;
            magnitude +=
                std::abs(value) * (std::abs(p.offsets[group]) + 256 * std::abs(p.scales[group]));
          }
          ASSERT_NEAR(got[row * 128 + n], want[row * 128 + n], magnitude * 64 * 0x1p-24);
          ASSERT_NEAR(got[row * 128 + n], exact, magnitude * 0x1p-10 + rounded)
              << "bits " << layout.bits << ", group " << layout.group << ", rows " << rows;
        }
    }
  }
}

// Halving a largest magnitude that is next to nothing must not end at a step of 0.
TEST_P(OutliersTest, TinyRowsHaveNone) {
  const IntLayout layout{4, 256, 128, 0, true, ScaleType::kF16, 8};
  IntProblem p(layout, 1, 1);
  std::fill(p.x.begin(), p.x.end(), 0.0f);
  p.x[7] = 1e-36f;
  const auto x = p.Rounded(table(), {});
  EXPECT_EQ(x, p.Rounded(scalar(), {}));
  EXPECT_EQ(static_cast<int8_t>(x[7]), 127);
  EXPECT_EQ(static_cast<int8_t>(x[8]), 0);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, OutliersTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
