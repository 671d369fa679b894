// Codes of e2m1: MXFP4, whose scales are powers of two, and NVFP4, whose scales are e4m3.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/integer.h"
#include "tests/kernels/integer_problem.h"

namespace pinion::kernels::testing {
namespace {

class E2M1Test : public ::testing::TestWithParam<Isa> {
 protected:
  const IntTable& table() const { return IntTableFor(GetParam()); }
  const IntTable& scalar() const { return IntTableFor(Isa::kScalar); }
};

constexpr IntLayout LayoutOf(size_t k, size_t group, ScaleType type) {
  return {4, k, group, -12, false, type};
}

constexpr IntLayout kE2M1Layouts[] = {
    LayoutOf(32, 32, ScaleType::kPower), LayoutOf(16, 32, ScaleType::kPower),
    LayoutOf(80, 16, ScaleType::kPower), LayoutOf(2880, 32, ScaleType::kPower),
    LayoutOf(16, 16, ScaleType::kE4m3),  LayoutOf(80, 16, ScaleType::kE4m3),
    LayoutOf(96, 16, ScaleType::kE4m3),  LayoutOf(2880, 16, ScaleType::kE4m3)};

// A group's sum of 15 bits times a scale of at most four is exact, and groups are added in one
// order: the same bits on every ISA. On tiles sums are rounded, but nothing else.
TEST_P(E2M1Test, IsExact) {
  for (const IntLayout& layout : kE2M1Layouts) {
    for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 101}) {
      SCOPED_TRACE(::testing::Message()
                   << "k " << layout.k << ", group " << layout.group << ", rows " << rows);
      const IntProblem p(layout, rows, 2);
      const auto x = p.Rounded(scalar(), {});
      const auto got = Multiply(table(), p, x);
      ExpectWithinSums(p, x.data(), got.data(), 2 * kBlockN);
      if (!SumsFloats(GetParam(), layout, rows)) {
        ASSERT_EQ(got, Multiply(scalar(), p, x));
      }
    }
  }
}

TEST_P(E2M1Test, LargestSumsDoNotOverflow) {
  for (const IntLayout& layout : {kE2M1Layouts[0], kE2M1Layouts[4]}) {
    for (size_t rows : {1, 2, 13, 64}) {
      for (const int code : {-12, 12}) {
        IntProblem p(layout, rows, 1);
        std::fill(p.codes.begin(), p.codes.end(), static_cast<int8_t>(code));
        if (layout.scale_type == ScaleType::kE4m3) {
          std::fill(p.scales.begin(), p.scales.end(), kLargestE4m3);
          std::fill(p.units.begin(), p.units.end(), 1.0f);
        }
        p.Pack();
        for (const float value : {-1.0f, 1.0f}) {
          std::fill(p.x.begin(), p.x.end(), value);
          const auto x = p.Rounded(scalar(), {1.0f / 128, 0});  // -128 and 127
          const float sum = value < 0 ? -1.0f : 127.0f / 128;
          const auto got = Multiply(table(), p, x);
          for (size_t n = 0; n < kBlockN; ++n)
            ASSERT_EQ(got[n],
                      static_cast<float>(layout.k) * sum * static_cast<float>(code) * p.scales[n])
                << "rows " << rows;
        }
      }
    }
  }
}

TEST_P(E2M1Test, EveryPrefetchGivesTheSameBits) {
  for (size_t rows : {1, 2, 5, 13, 19}) {
    const IntProblem p(LayoutOf(1104, 16, ScaleType::kE4m3), rows, 2);
    const auto x = p.Rounded(scalar(), {});
    for (const Prefetch prefetch : kPrefetches)
      ASSERT_EQ(Multiply(table(), p, x, prefetch), Multiply(table(), p, x)) << "rows " << rows;
  }
}

// For activations that are not rounded: nothing but the weight itself is, to half of its last bit
// and, as a float32 before, to 2^-24; a code of zero gives zero, whatever the bits of its scale.
TEST_P(E2M1Test, DequantisesToTheWeightsOnceRounded) {
  for (const IntLayout& layout : {kE2M1Layouts[5], kE2M1Layouts[4], kE2M1Layouts[2]}) {
    IntProblem p(layout, 1, 1);
    const size_t elements = kBlockN * layout.k_padded();
    std::vector<uint16_t> want(elements, 0xffff);  // NaN: whatever is left out shows
    Guarded<uint16_t> got(elements, 64);
    const auto dequantise = [&](const IntTable& with, uint16_t* dst) {
      with.dequantise(layout, p.packed.data(), Dtype::kBf16, reinterpret_cast<std::byte*>(dst));
    };
    dequantise(scalar(), want.data());
    dequantise(table(), got.data());
    ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << "k " << layout.k;
    for (size_t n = 0; n < kBlockN; ++n)
      for (size_t k = 0; k < layout.k; ++k) {
        const double exact = p.Weight(n, k);
        const float weight = ToFloat(Bf16{got[(k / 2 * kBlockN + n) * 2 + k % 2]});
        ASSERT_NEAR(weight, exact, std::abs(exact) * (0x1p-8 + 0x1p-24));
      }
  }
}

// An output's groups may differ by what a byte holds; what is smaller changes no float32 sum.
TEST_P(E2M1Test, PowersSpanTheRangeOfAByte) {
  for (const size_t rows : {1, 40}) {
    IntProblem p(LayoutOf(96, 32, ScaleType::kPower), rows, 1);
    for (size_t n = 0; n < kBlockN; ++n) {
      p.scales[n * 3] = 0x1p60f;
      p.scales[n * 3 + 1] = 0x1p-65f;  // 2^-126 of the output's own, 2^61
      p.scales[n * 3 + 2] = 0x1p-66f;
    }
    std::fill(p.codes.begin(), p.codes.end(), int8_t{0});
    for (size_t n = 0; n < kBlockN; ++n) p.codes[n * 96 + 32] = p.codes[n * 96 + 64] = 12;
    p.Pack();
    for (size_t row = 0; row < rows; ++row) p.x[row * 96 + 32] = p.x[row * 96 + 64] = 1;
    const auto got = Multiply(table(), p, p.Rounded(scalar(), {1, 0}));
    for (const float y : got) EXPECT_EQ(y, 12 * 0x1p-65f);
  }
}

// Each number of e4m3, negative ones and 480 (which files of GGUF may hold) as well, is one group's
// scale, and the product with one code is the scale itself.
TEST_P(E2M1Test, EveryE4m3ScaleIsKeptInAnyUnit) {
  constexpr size_t kGroups = 4;
  for (const size_t rows : {1, 40}) {
    IntProblem p(LayoutOf(kGroups * 16, 16, ScaleType::kE4m3), rows, 1);
    std::fill(p.codes.begin(), p.codes.end(), int8_t{0});
    std::fill(p.x.begin(), p.x.end(), 0.0f);
    std::vector<float> numbers(p.scales.size());
    for (size_t n = 0; n < kBlockN; ++n) {
      p.codes[n * p.layout.k + 19] = 1;
      // 24 bits, so that the scale in a checkpoint is a rounded product.
      p.units[n] = std::ldexp(static_cast<float>(0x800001 + 2 * (n * 52711 % 0x3fffff)), -27);
    }
    for (size_t row = 0; row < rows; ++row) p.x[row * p.layout.k + 19] = 1;
    for (size_t first = 0; first < 256; first += kBlockN) {
      for (size_t n = 0; n < kBlockN; ++n) {
        const auto byte = static_cast<uint8_t>(first + n);
        const float number =
            (byte & 0x7f) == 0x7f ? (byte < 128 ? 480.0f : -480.0f) : ToFloat(E4m3{byte});
        for (size_t group = 0; group < kGroups; ++group)
          p.scales[n * kGroups + group] = (group == 1 ? number : 448) * p.units[n];
        numbers[n] = number;
      }
      p.Pack();
      const auto got = Multiply(table(), p, p.Rounded(scalar(), {1, 0}));
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], numbers[i % kBlockN] * p.units[i % kBlockN])
            << "rows " << rows << ", byte " << first + i % kBlockN;
    }
  }
}

// A scale that is not finite spoils its own output alone.
TEST_P(E2M1Test, ScalesThatAreNotFiniteSpoilTheirOutput) {
  for (const IntLayout& layout :
       {LayoutOf(96, 32, ScaleType::kPower), LayoutOf(96, 16, ScaleType::kE4m3)}) {
    for (const size_t rows : {1, 40}) {
      IntProblem p(layout, rows, 1);
      p.scales[17 * layout.groups() + 1] = std::numeric_limits<float>::quiet_NaN();
      p.Pack();
      const auto got = Multiply(table(), p, p.Rounded(scalar(), {}));
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::isfinite(got[i]), i % kBlockN != 17) << "output " << i;
    }
  }
}

// 4 bits and an eighth of a byte for each weight of MXFP4, or a sixteenth more for each of NVFP4,
// besides 8 bytes for each output.
TEST(E2M1Packing, TakesFourBitsAndTheScales) {
  EXPECT_EQ(LayoutOf(2880, 32, ScaleType::kPower).block_bytes(),
            kBlockN * 2880 * 17 / 32 + kBlockN * 8);
  EXPECT_EQ(LayoutOf(32, 32, ScaleType::kPower).block_bytes(), kBlockN * 17 + kBlockN * 8);
  EXPECT_EQ(LayoutOf(2880, 16, ScaleType::kE4m3).block_bytes(),
            kBlockN * 2880 * 9 / 16 + kBlockN * 8);
  EXPECT_EQ(LayoutOf(16, 16, ScaleType::kE4m3).block_bytes(), kBlockN * 9 + kBlockN * 8);
}

// Nibbles as OCP Microscaling Formats 1.0 has them, in blocks that are full and that are not.
TEST(E2M1Packing, KeepsThePublishedNibbles) {
  constexpr int kDoubled[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (const IntLayout& layout : kE2M1Layouts) {
    for (const size_t rows : {kBlockN, size_t{37}}) {
      const IntProblem p(layout, 1, 1);
      Guarded<std::byte> packed(layout.block_bytes(), 64);
      std::fill(packed.begin(), packed.end(), std::byte{0xff});
      PackIntBlock(packed.data(), layout, p.codes.data(), p.scales.data(), p.offsets.data(), rows);
      for (size_t n = 0; n < kBlockN; ++n)
        for (size_t k = 0; k < layout.columns(); ++k) {
          const size_t column = k % layout.group, place = column % 8;
          const std::byte byte = packed.data()[k / layout.group * layout.group_bytes() +
                                               (column / 8 * kBlockN + n) * 4 + place % 4];
          const int nibble = std::to_integer<int>(byte) >> place / 4 * 4 & 15;
          const bool live = n < rows && k < layout.k;
          ASSERT_EQ(kDoubled[nibble], live ? p.codes[n * layout.k + k] : 0)
              << "group " << layout.group << ", n " << n << ", k " << k;
        }
    }
  }
}

// The bytes as published, in any unit.
TEST(E2M1Packing, KeepsThePublishedE4m3) {
  const IntLayout layout = LayoutOf(64, 16, ScaleType::kE4m3);
  std::vector<int8_t> codes(kBlockN * layout.k, 1);
  std::vector<float> scales, offsets(kBlockN * layout.groups()), units;
  for (size_t n = 0; n < kBlockN; ++n) {
    units.push_back(1 / (0.37f + static_cast<float>(n)));
    for (size_t group = 0; group < 4; ++group)
      scales.push_back(ToFloat(E4m3{static_cast<uint8_t>((n * 4 + group) % 127)}) * units[n]);
  }
  std::vector<std::byte> packed(layout.block_bytes());
  PackIntBlock(packed.data(), layout, codes.data(), scales.data(), offsets.data(), kBlockN,
               units.data());
  for (size_t n = 0; n < kBlockN; ++n)
    for (size_t group = 0; group < 4; ++group)
      EXPECT_EQ(
          std::to_integer<size_t>(packed[group * layout.group_bytes() + layout.code_bytes(16) + n]),
          (n * 4 + group) % 127);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, E2M1Test, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
