#pragma once

// Products with integer weights: int8 activations times codes of 8 or 4 bits, summed in int32 and
// then scaled in float32. Contract, threads and errors as in kernels.h.

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/kernels.h"

namespace pinion::kernels {

// Few activations may be kept apart from a row, so that they do not widen the steps in which all
// others are rounded: models have channels a hundred times as large as the rest. (Dettmers et al.,
// LLM.int8(), arXiv:2208.07339, sec. 3.2, does so with whole channels.)
inline constexpr size_t MostOutliers(size_t k) { return k < 512 ? 8 : k < 4096 ? k / 64 : 64; }

struct Outlier {
  uint32_t column;
  float value;
};

// ---- Packed weights -------------------------------------------------------------------------
// weight[n][k] = scale[n][group of k] * code[n][k] + offset[n][group of k]. Codes are stored
// unsigned, less the lowest, because VPDPBUSD multiplies unsigned bytes by signed ones: weights are
// its unsigned operand, activations its signed one.
//
// A packed block holds 64 outputs. For each group of columns:
//   8 bits  [group/4][64 n][4 k]
//   4 bits  [group/8][64 n][8 k]  a word's low nibbles are columns 0 to 3, its high ones 4 to 7
//   float16 scales [64], float16 offsets [64] (offsets if has_offsets), both relative to the
//   output's own float32 scale, so that float16 has the range. Neither if whole rows are one group.
//   e2m1: a byte for each of the 64 scales instead, relative to the output's own float32, too
//     kPower   b for 2^(b - 127), 0 for 0
//     kE4m3    the bits of an e4m3 for its value times 2^-8: those of a float16, but for zeros on
//              both sides of them. 0x7f and 0xff are no NaNs but 480 and -480.
//   e4m3: float32 scales [64], not relative to anything
// e2m1: codes of 4 bits are a sign and a magnitude as published; twice their values, whole numbers
// from -12 to 12, are the integers that the formula above calls code, and half of it is part of the
// scale.
// e4m3: "codes" are eight-bit floats as published (types.h), weight = scale * value, and their
// order serves their conversion: [group/2][2 halves of the outputs][8 places][4 n][2 k], outputs 0
// to 15 of a half at its even places and 16 to 31 at the odd ones. e4m3.h multiplies them. and at
// the end
//   float32 [64]  the outputs' scales (e4m3 in groups: 0). If there are groups, powers of two, so
//                 that scales that the checkpoint stores in 16 bits are kept exactly; kE4m3: 2^8 of
//                 the checkpoint's unit, or NaN if one of the output's scales is not finite
//   int32   [64]  if whole rows are one group: the sum of each output's codes
struct IntLayout {
  int bits = 8;       // of a code: 4 or 8
  size_t k = 0;       // columns
  size_t group = 0;   // columns that share a scale, a multiple of 16; or k: whole rows, without
                      // offsets
  int lowest = -128;  // the code that is stored as 0
  bool has_offsets = false;
  // Of a byte: with codes of e2m1, 4 bits, in groups, lowest -12, no offsets.
  ScaleType scale_type = ScaleType::kF16;
  size_t outliers = 0;  // most activations of a row that are kept apart
  bool e4m3 = false;    // with 8 bits, lowest 0, no offsets

  // Always inlined, because ISA files call them (README, the rule of ISA files).
  [[gnu::always_inline]] bool e2m1() const { return scale_type != ScaleType::kF16; }
  [[gnu::always_inline]] bool whole_rows() const { return group == k && !has_offsets && !e2m1(); }
  [[gnu::always_inline]] size_t k_padded() const { return RoundUp(k, kPadK); }
  [[gnu::always_inline]] size_t groups() const {
    return whole_rows() ? 1 : (k + group - 1) / group;
  }
  [[gnu::always_inline]] size_t code_bytes(size_t columns) const {
    return kBlockN * columns * static_cast<size_t>(bits) / 8;
  }
  // Bytes from group to group.
  [[gnu::always_inline]] size_t group_bytes() const {
    if (whole_rows()) return code_bytes(k_padded());
    return code_bytes(group) + kBlockN * scale_bytes();
  }
  // Bytes of an output's scale and offset in a group.
  [[gnu::always_inline]] size_t scale_bytes() const {
    if (e2m1()) return 1;
    if (e4m3) return sizeof(float);
    return has_offsets ? 2 * sizeof(F16) : sizeof(F16);
  }
  [[gnu::always_inline]] size_t block_bytes() const {
    return groups() * group_bytes() + kBlockN * (sizeof(float) + sizeof(int32_t));
  }
  // ---- Activations: a row is int8 [columns()], then float32 scale, int32 zero point, int32
  // [groups()] sums of the group's values; and if there may be outliers, uint32 how many there are,
  // Outlier [outliers] by column. The row's value at their columns is 0.
  [[gnu::always_inline]] size_t columns() const {
    return whole_rows() ? k_padded() : groups() * group;
  }
  [[gnu::always_inline]] size_t outliers_at() const { return columns() + 8 + 4 * groups(); }
  [[gnu::always_inline]] size_t row_bytes() const {
    const size_t apart = outliers > 0 ? sizeof(uint32_t) + outliers * sizeof(Outlier) : 0;
    return RoundUp(outliers_at() + apart, 64);
  }
};

// Packs rows [0, rows) (at most 64; missing ones become zero) into one block.
//   codes   [rows][k]; e2m1: twice the values; e4m3: the bytes, of which a NaN makes its scale one
//   scales, offsets   [rows][groups()]; kPower: a scale below 2^-126 of its output's largest is
//                     stored as 0; kE4m3: scales become e4m3 times their output's unit
//   units   kE4m3: [rows], positive; null: 1; others: not read
void PackIntBlock(std::byte* dst, const IntLayout& layout, const int8_t* codes, const float* scales,
                  const float* offsets, size_t rows, const float* units = nullptr);

// Unpacks eight codes of 4 bits from each of 64 words, as formats store them that pack codes into
// words: dst[place][word], place 0 being the lowest bits. `bias` is subtracted; the result must fit
// an int8.
inline constexpr size_t kNibbleWords = 64;
void UnpackNibbles(const uint32_t* words, int bias, int8_t* dst);

// ---- Functions ------------------------------------------------------------------------------
// How a row of activations is rounded: q = round_half_even(x / scale) + zero_point, clamped to
// int8. All products of a row that is not finite are NaN.
struct Rounding {
  // 0: absmax / 127 of the row, and no zero point. If the layout has outliers, the largest
  // magnitude is halved while no more than those lie above it, to a quarter at least.
  float scale = 0;
  int32_t zero_point = 0;
};
struct RoundArgs {
  std::byte* dst;  // row_bytes()
  const void* x;   // [k]
  Dtype x_type;    // kF32 or kBf16
  Rounding rounding;
  // [k]: the element of x for each column, or kNoColumn for 0; null: column i is element i.
  const uint32_t* order = nullptr;
};
inline constexpr uint32_t kNoColumn = ~uint32_t{0};

// Limits of Rounding's outliers: the largest magnitude is divided by kFewestOutlierSteps to
// kMostOutlierSteps powers of two. Below, they are not worth their products.
inline constexpr int kFewestOutlierSteps = 2, kMostOutlierSteps = 12;
// Rows whose largest magnitude is below have none, so that no step becomes 0.
inline constexpr float kLeastOutlier = 0x1p-100f;

// y[rows][blocks * 64] = x * w^T, overwriting y.
struct IntGemmArgs {
  const std::byte* x;  // rows, row_bytes() apart, 64-byte aligned
  const std::byte* w;  // `blocks` consecutive packed blocks
  float* y;            // row stride ldy elements, 64-byte aligned rows
  size_t rows, blocks, ldy;
  Prefetch prefetch = Prefetch::kNear;
};

// For all layouts but those of e4m3, which have tables of their own (e4m3.h).
struct IntTable {
  const char* name;  // "avx512_vnni": the instructions used
  void (*round)(const IntLayout& layout, const RoundArgs& args);
  // If whole rows are one group the sums are exact, and all tables give the same bits. The same
  // holds for e2m1, whose groups are added in order; except that "amx_int8" sums the products of
  // more than 32 rows in float32, if columns() is a multiple of 32.
  void (*gemm)(const IntLayout& layout, const IntGemmArgs& args);
  // Converts one block's weights to floats, packed as by PackBlock (kernels.h); columns beyond the
  // last group become zero. dst_type: kBf16 or kF16. It serves products with activations that are
  // not rounded; dst is meant to stay in cache. Scales must be finite; all tables give the same
  // bits.
  void (*dequantise)(const IntLayout& layout, const std::byte* block, Dtype dst_type,
                     std::byte* dst);
  // How rows are best cut into calls of gemm; null: any cut is as good.
  ProductCut (*cut)(const IntLayout& layout, size_t rows) = nullptr;
};
// The best table within a usable ISA path.
const IntTable& IntTableFor(Isa isa);

}  // namespace pinion::kernels
