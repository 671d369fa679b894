#include "kernels/amx_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>

namespace pinion::kernels {
namespace {

// Numerical Recipes' "quick and dirty" generator (2nd edition, section 7.1); its high bits are
// used. The standard library's distributions divide, which would take most of the check's time.
class Rng {
 public:
  explicit Rng(uint32_t seed) : state_(seed) {}
  // A whole number from `low` to `high`, at most 2^16 apart.
  int Any(int low, int high) {
    state_ = state_ * 1664525 + 1013904223;
    const auto count = static_cast<uint32_t>(high - low + 1);
    return low + static_cast<int>((state_ >> 16) * count >> 16);
  }

 private:
  uint32_t state_;
};

// The shapes multiplied: one full tile of rows, a few rows, two tiles of which the second has one
// row, and 32 rows followed by so few that tiles are configured again. K ends within a step or with
// one.
struct Shape {
  size_t rows, k, outputs;
  size_t blocks() const { return (outputs + kBlockN - 1) / kBlockN; }
  size_t OutputsOf(size_t block) const { return std::min(kBlockN, outputs - block * kBlockN); }
};
constexpr Shape kBf16Shapes[] = {{16, 32, 128}, {3, 33, 72}, {17, 97, 70}, {40, 63, 128}};

struct IntProblem {
  Shape shape;
  IntLayout layout;
};
constexpr IntProblem kIntProblems[] = {
    {{16, 64, 64}, {.bits = 8, .k = 64, .group = 64}},
    {{33, 36, 50}, {.bits = 8, .k = 36, .group = 36}},
    {{40, 128, 64}, {.bits = 4, .k = 128, .group = 64, .lowest = 0, .has_offsets = true}},
    {{40, 64, 64},
     {.bits = 4, .k = 64, .group = 32, .lowest = -12, .scale_type = ScaleType::kPower}},
    {{40, 64, 64},
     {.bits = 4, .k = 64, .group = 16, .lowest = -12, .scale_type = ScaleType::kE4m3}},
};

// The comparison includes the gaps between rows and the rows behind the result, which a tile would
// overwrite if it were configured with too many rows.
constexpr size_t kMostGroups = 4;
constexpr size_t kRowsWatched = 48, kMostColumns = 128, kMostOutputs = 128;
constexpr size_t kRowPitch = kMostOutputs + 16;
constexpr float kUntouched = 0x1p100f;  // far above every result

struct alignas(64) Operands {
  std::byte x[kRowsWatched * kMostColumns * sizeof(Bf16)] = {};
  std::byte w[kMostOutputs * kMostColumns * sizeof(Bf16)] = {};
  float got[kRowsWatched * kRowPitch], want[kRowsWatched * kRowPitch];
};

// Scales rows and outputs by different powers of two, so that exponents differ.
float PowerOfTwo(size_t index) { return 1.0f / static_cast<float>(1u << index % 5); }

// bfloat16 has 8 bits of significand, so operands are not rounded.
constexpr int kLargestBf16 = 255;
static_assert(kLargestBf16 * kLargestBf16 * kMostColumns < 1 << 24, "sums are exact in float32");
Bf16 Exactly(float value) { return {static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)}; }

std::string Number(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
  return text;
}

std::string HowItDiffers(float got, float want) {
  if (want == kUntouched) return " is outside the result and was overwritten";
  if (got == kUntouched) return " was left unwritten";
  return " is " + Number(got) + " instead of " + Number(want);
}

// The first element that differs, in words; empty if none does.
std::string FirstDifference(const char* kind, const Shape& shape, const Operands& operands) {
  for (size_t i = 0; i < kRowsWatched * kRowPitch; ++i) {
    if (operands.got[i] == operands.want[i]) continue;
    return "row " + std::to_string(i / kRowPitch) + ", output " + std::to_string(i % kRowPitch) +
           " of a product of " + kind + " (" + std::to_string(shape.rows) + " rows, " +
           std::to_string(shape.k) + " columns, " + std::to_string(shape.outputs) + " outputs)" +
           HowItDiffers(operands.got[i], operands.want[i]);
  }
  return {};
}

template <typename Multiply>
std::string Compare(const char* kind, const Shape& shape, Operands& operands,
                    const TileProducts& tiles, const TileProducts& reference, Multiply multiply) {
  std::fill(std::begin(operands.got), std::end(operands.got), kUntouched);
  std::fill(std::begin(operands.want), std::end(operands.want), kUntouched);
  multiply(tiles, operands.got);
  multiply(reference, operands.want);
  return FirstDifference(kind, shape, operands);
}

// `rows` rows of k columns.
void FillBf16(Rng& rng, size_t rows, size_t k, size_t stride, Bf16* dst) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < k; ++i) {
      const auto value = static_cast<float>(rng.Any(-kLargestBf16, kLargestBf16));
      dst[row * stride + i] = Exactly(value * PowerOfTwo(row));
    }
  }
}

std::string CompareBf16(const Shape& shape, Operands& operands, const TileProducts& tiles,
                        const TileProducts& reference) {
  Rng rng(1);
  const size_t k_padded = RoundUp(shape.k, kPadK);
  auto* x = reinterpret_cast<Bf16*>(operands.x);
  std::fill(std::begin(operands.x), std::end(operands.x), std::byte{0});
  FillBf16(rng, shape.rows, shape.k, k_padded, x);
  for (size_t block = 0; block < shape.blocks(); ++block) {
    Bf16 weights[kBlockN * kMostColumns];
    FillBf16(rng, shape.OutputsOf(block), shape.k, shape.k, weights);
    PackBlock(operands.w + block * PackedBlockBytes(Dtype::kBf16, shape.k), Dtype::kBf16,
              reinterpret_cast<const std::byte*>(weights), Dtype::kBf16, shape.k,
              shape.OutputsOf(block), shape.k);
  }
  return Compare(
      "bfloat16", shape, operands, tiles, reference, [&](const TileProducts& products, float* y) {
        products.bf16({x, operands.w, y, shape.rows, k_padded, shape.blocks(), kRowPitch});
      });
}

// Twice a value of e2m1.
int AnyDoubledE2m1(Rng& rng) {
  constexpr int kMagnitudes[] = {0, 1, 2, 3, 4, 6, 8, 12};
  const int magnitude = kMagnitudes[rng.Any(0, 7)];
  return rng.Any(0, 1) == 0 ? magnitude : -magnitude;
}

// Sums of 128 columns are below 2^22 in 8 bits; in 4 bits, with offsets of at most 15 scales, below
// 2^19 of the largest scale, which is 2^4 of the smallest; of 64 columns of e2m1 below 2^17 of it:
// exact in float32.
void FillIntegers(Rng& rng, const IntProblem& problem, Operands& operands) {
  const IntLayout& layout = problem.layout;
  const int most = layout.lowest + (1 << layout.bits) - 1;
  int8_t codes[kBlockN * kMostColumns];
  float scales[kBlockN * kMostGroups], offsets[kBlockN * kMostGroups], row[kMostColumns];
  for (size_t i = 0; i < kBlockN * layout.k; ++i)
    codes[i] =
        static_cast<int8_t>(layout.e2m1() ? AnyDoubledE2m1(rng) : rng.Any(layout.lowest, most));
  for (size_t i = 0; i < kBlockN * layout.groups(); ++i) {
    scales[i] = PowerOfTwo(i);
    offsets[i] = layout.has_offsets ? static_cast<float>(rng.Any(-15, 0)) * scales[i] : 0;
  }
  PackIntBlock(operands.w, layout, codes, scales, offsets, problem.shape.outputs);
  for (size_t r = 0; r < problem.shape.rows; ++r) {
    const int32_t zero_point = layout.whole_rows() ? -5 : 0;
    for (size_t i = 0; i < layout.k; ++i)
      row[i] = static_cast<float>(rng.Any(-128 - zero_point, 127)) * PowerOfTwo(r);
    IntTableFor(Isa::kScalar)
        .round(layout, {operands.x + r * layout.row_bytes(),
                        row,
                        Dtype::kF32,
                        {.scale = PowerOfTwo(r), .zero_point = zero_point}});
  }
}

std::string CompareIntegers(const IntProblem& problem, Operands& operands,
                            const TileProducts& tiles, const TileProducts& reference) {
  Rng rng(2);
  FillIntegers(rng, problem, operands);
  const char* kind = problem.layout.e2m1()      ? "4-bit floats"
                     : problem.layout.bits == 4 ? "4-bit integers"
                                                : "8-bit integers";
  return Compare(kind, problem.shape, operands, tiles, reference,
                 [&](const TileProducts& products, float* y) {
                   products.integer(problem.layout,
                                    {operands.x, operands.w, y, problem.shape.rows, 1, kRowPitch});
                 });
}

}  // namespace

std::string CompareTileProducts(const TileProducts& tiles, const TileProducts& reference) {
  const auto operands = std::make_unique<Operands>();
  std::string difference;
  for (const Shape& shape : kBf16Shapes)
    if (difference.empty()) difference = CompareBf16(shape, *operands, tiles, reference);
  for (const IntProblem& problem : kIntProblems)
    if (difference.empty()) difference = CompareIntegers(problem, *operands, tiles, reference);
  return difference;
}

std::string CheckAmx() {
  return CompareTileProducts(
      {TableFor(Isa::kAmx).gemm_bf16, IntTableFor(Isa::kAmx).gemm},
      {TableFor(Isa::kAvx512Bf16).gemm_bf16, IntTableFor(Isa::kScalar).gemm});
}

}  // namespace pinion::kernels
