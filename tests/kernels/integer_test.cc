#include "kernels/integer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/integer_prefetch.h"
#include "tests/kernels/integer_problem.h"

namespace pinion::kernels::testing {
namespace {

class IntegerTest : public ::testing::TestWithParam<Isa> {
 protected:
  const IntTable& table() const { return IntTableFor(GetParam()); }
  const IntTable& scalar() const { return IntTableFor(Isa::kScalar); }
};

TEST_P(IntegerTest, RoundsAsTheScalarTableDoes) {
  for (size_t k : {1, 15, 16, 33, 200}) {
    for (const Rounding rounding : {Rounding{}, Rounding{0.01f, 0}, Rounding{0.02f, -7}}) {
      IntProblem p({8, k, k, -128, false}, 3, 1);
      if (k > 20) p.x[3] = 0.5f * 0.01f, p.x[4] = 1.5f * 0.01f;  // ties go to even
      EXPECT_EQ(p.Rounded(table(), rounding), p.Rounded(scalar(), rounding)) << "k " << k;
    }
  }
}

TEST_P(IntegerTest, RoundsBfloat16AndZeros) {
  const IntLayout layout{8, 40, 40, -128, false};
  std::vector<Bf16> x(40);
  for (const float largest : {0.0f, 3.0f}) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = ToBf16(largest * static_cast<float>(i) / 39);
    std::vector<std::byte> want(layout.row_bytes()), got(layout.row_bytes());
    scalar().round(layout, {want.data(), x.data(), Dtype::kBf16, {}});
    table().round(layout, {got.data(), x.data(), Dtype::kBf16, {}});
    EXPECT_EQ(got, want);
    EXPECT_EQ(static_cast<int8_t>(got[39]), largest > 0 ? 127 : 0);
  }
}

// Columns in another order, with gaps: as if the activations had been laid so beforehand.
TEST_P(IntegerTest, RoundsColumnsInTheOrderAskedFor) {
  for (const Dtype type : {Dtype::kF32, Dtype::kBf16}) {
    const size_t k = 608, source = 571;  // more than are gathered at once
    const IntLayout layout{4, k, 32, -8, false};
    const std::vector<float> x = Normal(source, 1);
    std::vector<uint32_t> order(k, kNoColumn);
    for (size_t i = 0; i < source; ++i) order[i + i / 20] = static_cast<uint32_t>(i * 7 % source);
    std::vector<Bf16> narrow, narrow_laid;
    std::vector<float> laid;
    for (const float value : x) narrow.push_back(ToBf16(value));
    for (const uint32_t column : order) {
      laid.push_back(column == kNoColumn ? 0 : x[column]);
      narrow_laid.push_back(column == kNoColumn ? Bf16{} : narrow[column]);
    }
    const bool wide = type == Dtype::kF32;
    std::vector<std::byte> want(layout.row_bytes()), got(layout.row_bytes());
    scalar().round(layout, {want.data(),
                            wide ? static_cast<const void*>(laid.data())
                                 : static_cast<const void*>(narrow_laid.data()),
                            type,
                            {}});
    table().round(layout, {got.data(),
                           wide ? static_cast<const void*>(x.data())
                                : static_cast<const void*>(narrow.data()),
                           type,
                           {},
                           order.data()});
    EXPECT_EQ(got, want);
  }
}

// A row with a NaN or an infinity, which would round to an ordinary code, has no products; and the
// others have theirs.
TEST_P(IntegerTest, ProductsOfARowThatIsNotFiniteAreNan) {
  for (const IntLayout layout : {IntLayout{8, 75, 75, -128, false}, IntLayout{4, 96, 32, 0, true},
                                 IntLayout{4, 96, 32, -12, false, ScaleType::kPower},
                                 IntLayout{8, 96, 96, -128, false, ScaleType::kF16, 4}}) {
    for (const Rounding rounding : {Rounding{}, Rounding{0.02f, -7}}) {
      if (rounding.scale != 0 && !layout.whole_rows()) continue;
      const IntProblem sound(layout, 5, 2);
      const auto want = Multiply(table(), sound, sound.Rounded(table(), rounding));
      for (const float broken : {NAN, INFINITY, -INFINITY}) {
        for (size_t at : {size_t{0}, size_t{37}, layout.k - 1}) {
          IntProblem p(layout, 5, 2);
          p.x[3 * layout.k + at] = broken;
          const auto got = Multiply(table(), p, p.Rounded(table(), rounding));
          for (size_t i = 0; i < got.size(); ++i) {
            const bool is_broken = i / 128 == 3;
            ASSERT_TRUE(is_broken ? std::isnan(got[i]) : got[i] == want[i])
                << broken << " at " << at << ": output " << i << " is " << got[i];
          }
        }
      }
    }
  }
}

// Whole rows: integers to the end, so the same bits on every ISA.
TEST_P(IntegerTest, WholeRowsAreExact) {
  for (const int bits : {4, 8}) {
    for (size_t k : {1, 31, 64, 520, 1100, 2100}) {  // the last: several chunks of any length
      for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 101}) {
        const IntProblem p({bits, k, k, bits == 8 ? -128 : -8, false}, rows, 2);
        for (const Rounding rounding : {Rounding{}, Rounding{0.02f, -7}}) {
          const auto x = p.Rounded(scalar(), rounding);
          ASSERT_EQ(Multiply(table(), p, x), Multiply(scalar(), p, x))
              << "bits " << bits << ", k " << k << ", rows " << rows;
        }
      }
    }
  }
}

// The largest codes by the largest activations: sums that would not fit one bit less.
TEST_P(IntegerTest, LargestSumsDoNotOverflow) {
  for (const int bits : {4, 8}) {
    for (size_t rows : {1, 2, 13}) {
      IntProblem p({bits, 1100, 1100, bits == 8 ? -128 : -8, false}, rows, 1);
      std::fill(p.codes.begin(), p.codes.end(), bits == 8 ? 127 : 7);
      p.Pack();
      for (const float value : {-1.0f, 1.0f}) {
        std::fill(p.x.begin(), p.x.end(), value);
        const auto x = p.Rounded(scalar(), {1.0f / 128, 0});  // -128 and 127
        ASSERT_EQ(Multiply(table(), p, x), Multiply(scalar(), p, x))
            << "bits " << bits << ", rows " << rows << ", activations " << value;
      }
    }
  }
}

// Groups: each adds its integer sum, times a scale, to a float32; the scales are rounded to
// float16.
TEST_P(IntegerTest, GroupsAreWithinTheirRoundings) {
  for (const IntLayout layout :
       {IntLayout{4, 96, 16, -8, false}, IntLayout{4, 256, 128, 0, true},
        IntLayout{8, 96, 32, -128, false}, IntLayout{8, 80, 16, -32, true},
        IntLayout{4, 64, 64, 0, true}, IntLayout{8, 640, 640, 0, true},
        IntLayout{4, 640, 640, 0, true}, IntLayout{4, 96, 32, -12, false, ScaleType::kPower}}) {
    for (size_t rows : {1, 5, 6, 13, 101}) {
      const IntProblem p(layout, rows, 2);
      const auto x = p.Rounded(scalar(), {});
      const auto got = Multiply(table(), p, x);
      for (size_t row = 0; row < rows; ++row) {
        const std::byte* q = x.data() + row * layout.row_bytes();
        float scale;
        std::memcpy(&scale, q + layout.columns(), sizeof(scale));
        for (size_t n = 0; n < 128; ++n) {
          double exact = 0, magnitude = 0;
          for (size_t k = 0; k < layout.k; ++k) {
            const double value = scale * static_cast<double>(static_cast<int8_t>(q[k]));
            const size_t group = n * layout.groups() + k / layout.group;
            exact += value * p.Weight(n, k);
            // Codes are stored less their lowest: what is rounded may be larger than the weight.
            magnitude +=
                std::abs(value) * (std::abs(p.offsets[group]) + 256 * std::abs(p.scales[group]));
          }
          // Scales and offsets are rounded to float16 (2^-11), sums of at most 16 groups to
          // float32.
          ASSERT_NEAR(got[row * 128 + n], exact, magnitude * (0x1p-11 + 32 * 0x1p-24))
              << "bits " << layout.bits << ", group " << layout.group << ", rows " << rows;
        }
      }
    }
  }
}

// How weights are asked for changes no bit.
TEST_P(IntegerTest, EveryPrefetchGivesTheSameBits) {
  for (const IntLayout layout :
       {IntLayout{8, 1100, 1100, -128, false}, IntLayout{4, 1100, 1100, -8, false},
        IntLayout{8, 2100, 2100, -128, false}, IntLayout{4, 2176, 128, 0, true},
        IntLayout{8, 96, 32, -128, false}, IntLayout{4, 96, 32, -12, false, ScaleType::kPower}}) {
    for (size_t rows : {1, 2, 5, 13, 19}) {
      const IntProblem p(layout, rows, 2);
      const auto x = p.Rounded(scalar(), {});
      for (const Prefetch prefetch : kPrefetches)
        ASSERT_EQ(Multiply(table(), p, x, prefetch), Multiply(table(), p, x))
            << "bits " << layout.bits << ", rows " << rows;
    }
  }
}

TEST_P(IntegerTest, PrefetchIsMeasuredForTheKindsAskedForAndRemembered) {
  const IntLayout rows{8, 96, 96, -128, false}, groups{4, 96, 32, -8, true};
  const IntPrefetch both = MeasureIntPrefetch(GetParam(), {rows, groups, groups});
  EXPECT_FALSE(both.Rules(rows).empty());
  EXPECT_FALSE(both.Rules(groups).empty());
  const IntPrefetch again = MeasureIntPrefetch(GetParam(), {groups});
  EXPECT_EQ(again.Rules(groups), both.Rules(groups));
  EXPECT_TRUE(again.Rules(rows).empty());
}

TEST(IntPrefetch, FollowsTheRulesOfTheKind) {
  const IntLayout rows{8, 64, 64, -128, false}, groups{4, 64, 32, -8, true};
  IntPrefetch prefetch;
  EXPECT_EQ(prefetch.For(rows, 1), Prefetch::kNear);
  EXPECT_EQ(prefetch.Describe(), "");
  prefetch.Set(rows, {{1, Prefetch::kNone}, {6, Prefetch::kFar}});
  EXPECT_EQ(prefetch.For(rows, 1), Prefetch::kNone);
  EXPECT_EQ(prefetch.For(rows, 5), Prefetch::kNone);
  EXPECT_EQ(prefetch.For(rows, 6), Prefetch::kFar);
  EXPECT_EQ(prefetch.For(groups, 6), Prefetch::kNear);
  EXPECT_EQ(prefetch.Describe(), "none,far@6 (8 bits, whole rows)");
}

// A packed block, [columns / pair][64][pair].
float PanelWeight(const std::vector<uint16_t>& panel, Dtype type, size_t n, size_t k) {
  const size_t pair = type == Dtype::kBf16 ? 2 : 1;
  const uint16_t bits = panel[(k / pair * kBlockN + n) * pair + k % pair];
  return type == Dtype::kBf16 ? ToFloat(Bf16{bits}) : ToFloat(F16{bits});
}

TEST_P(IntegerTest, DequantisesToTheWeightsOnceRounded) {
  for (const IntLayout layout :
       {IntLayout{8, 70, 70, -128, false}, IntLayout{4, 64, 64, -8, false},
        IntLayout{4, 96, 16, -8, false}, IntLayout{4, 200, 128, 0, true},
        IntLayout{8, 48, 16, -32, true}, IntLayout{4, 96, 32, -12, false, ScaleType::kPower},
        IntLayout{4, 16, 32, -12, false, ScaleType::kPower}}) {
    const IntProblem p(layout, 1, 2);
    for (const Dtype type : {Dtype::kBf16, Dtype::kF16}) {
      const size_t elements = kBlockN * layout.k_padded();
      ASSERT_EQ(PackedBlockBytes(type, layout.k), elements * sizeof(uint16_t));
      std::vector<uint16_t> want(elements, 0xffff);  // NaN: whatever is left out shows
      Guarded<uint16_t> got(elements, 64);
      const std::byte* block = p.packed.data() + layout.block_bytes();  // the second
      scalar().dequantise(layout, block, type, reinterpret_cast<std::byte*>(want.data()));
      table().dequantise(layout, block, type, reinterpret_cast<std::byte*>(got.data()));
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin()))
          << "bits " << layout.bits << ", k " << layout.k << ", type " << Name(type);
      for (size_t n = 0; n < kBlockN; ++n)
        for (size_t k = 0; k < layout.k; ++k) {
          const double exact = p.Weight(kBlockN + n, k);
          const size_t group = (kBlockN + n) * layout.groups() + k / layout.group;
          const double stored = std::abs(p.offsets[group]) + 256 * std::abs(p.scales[group]);
          const double last = type == Dtype::kBf16 ? 0x1p-8 : 0x1p-10;
          // Scale and offset are rounded to float16 first, of which the weight may be a difference.
          ASSERT_NEAR(PanelWeight(want, type, n, k), exact,
                      last * std::abs(exact) + stored * 0x1p-11);
        }
      for (size_t k = layout.k; k < layout.k_padded(); ++k)
        EXPECT_TRUE(std::isfinite(PanelWeight(want, type, 5, k)));
    }
  }
}

// The layout of integer.h, code by code; also in blocks that are not full, and in the columns up to
// the padding.
TEST(IntegerPacking, PutsCodesInThePlacesOfTheLayout) {
  for (const IntLayout layout : {IntLayout{8, 70, 70, -128, false}, IntLayout{4, 70, 70, -8, false},
                                 IntLayout{8, 48, 16, -32, true}, IntLayout{4, 96, 16, -8, false},
                                 IntLayout{4, 200, 128, 0, true}}) {
    for (const size_t rows : {kBlockN, size_t{37}}) {
      const IntProblem p(layout, 1, 1);  // whose codes and scales are packed anew
      Guarded<std::byte> packed(layout.block_bytes(), 64);
      std::fill(packed.begin(), packed.end(), std::byte{0xff});
      PackIntBlock(packed.data(), layout, p.codes.data(), p.scales.data(), p.offsets.data(), rows);
      const auto width = layout.whole_rows() ? layout.k_padded() : layout.group;
      const auto in_word = static_cast<size_t>(32 / layout.bits);
      for (size_t n = 0; n < kBlockN; ++n)
        for (size_t k = 0; k < layout.groups() * width; ++k) {
          const size_t column = k % width, place = column % in_word;
          const std::byte byte = packed.data()[k / width * layout.group_bytes() +
                                               (column / in_word * kBlockN + n) * 4 + place % 4];
          const int stored = layout.bits == 8 ? std::to_integer<int>(byte)
                                              : std::to_integer<int>(byte) >> place / 4 * 4 & 15;
          const bool live = n < rows && k < layout.k;
          ASSERT_EQ(stored, live ? p.codes[n * layout.k + k] - layout.lowest : 0)
              << "bits " << layout.bits << ", group " << layout.group << ", n " << n << ", k " << k;
        }
    }
  }
}

TEST(IntegerPacking, SumsTheCodesOfWholeRows) {
  for (const int bits : {4, 8}) {
    const IntLayout layout{bits, 333, 333, bits == 8 ? -128 : -8, false};
    const IntProblem p(layout, 1, 1);
    for (size_t n = 0; n < kBlockN; ++n) {
      int32_t stored;
      std::memcpy(&stored, p.packed.data() + layout.block_bytes() - (kBlockN - n) * sizeof(stored),
                  sizeof(stored));
      const int8_t* codes = p.codes.data() + n * layout.k;
      ASSERT_EQ(stored, std::accumulate(codes, codes + layout.k, 0)) << n;
    }
  }
}

// AWQ's and GPTQ's scales are float16, compressed-tensors' bfloat16: neither loses a bit.
TEST(IntegerPacking, ScalesOfSixteenBitsStayUnchanged) {
  const IntLayout layout{4, 64, 32, -8, false};
  std::vector<int8_t> codes(kBlockN * layout.k, 1);
  std::vector<float> scales, offsets(kBlockN * 2, 0);
  for (size_t i = 0; i < kBlockN * 2; ++i)
    scales.push_back(i % 3 == 0 ? ToFloat(ToBf16(0.37f / static_cast<float>(i + 1)))
                                : ToFloat(ToF16(0.0123f * static_cast<float>(i + 1))));
  std::vector<std::byte> packed(layout.block_bytes());
  PackIntBlock(packed.data(), layout, codes.data(), scales.data(), offsets.data(), kBlockN);
  for (size_t n = 0; n < kBlockN; ++n)
    for (size_t group = 0; group < 2; ++group) {
      F16 stored;
      float own;
      const size_t at = group * layout.group_bytes() + layout.code_bytes(32) + n * sizeof(stored);
      std::memcpy(&stored, packed.data() + at, sizeof(stored));
      std::memcpy(&own, packed.data() + 2 * layout.group_bytes() + n * sizeof(own), sizeof(own));
      EXPECT_EQ(ToFloat(stored) * own, scales[n * 2 + group]);
    }
}

// Names the path that the suite above leaves out.
TEST(IntegerPaths, VnniOf256BitsIsCoveredOrSkipped) {
  const auto& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), Isa::kAvx2Vnni) == usable.end())
    GTEST_SKIP() << "this CPU has no AVX-VNNI";
  EXPECT_STREQ(IntTableFor(Isa::kAvx2Vnni).name, "avx2_vnni");
}

INSTANTIATE_TEST_SUITE_P(AllIsas, IntegerTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
