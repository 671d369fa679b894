#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/quantised.h"

namespace pinion {

// The value of a code: itself, a float of 8 bits (e4m3), or half of itself as one of the 15 values
// of e2m1, with scales that are powers of two (MXFP4) or e4m3 times kNvfp4Unit (NVFP4).
enum class CodeKind { kInteger, kE4m3, kMxfp4, kNvfp4 };

// Half of the scale of a whole matrix, in place of the one by which its largest weight would be
// 6 * 448: weights are rounded before all of them are known. Groups' largest ones from 6 * 2^-16 to
// 6 * 448 * 2^-10 = 2.6 keep the precision of e4m3, and linears have hardly others.
inline constexpr float kNvfp4Unit = 0x1p-11f;

// How Pinion itself rounds a matrix, each weight to the nearest code.
struct RoundingScheme {
  int bits = 8;                        // 4 or 8
  size_t group = 0;                    // columns that share a scale; 0: whole rows
  bool symmetric = true;               // scale = absmax / highest code; else from the values' range
  CodeKind kind = CodeKind::kInteger;  // kE4m3: 8 bits; the last two: 4 bits; all symmetric

  CodeRange range() const;
  size_t group_of(size_t columns) const { return group == 0 ? columns : group; }
};

// The weights that the codes of one group stand for: weight = scale * (code - zero). Scales of 4
// bits are rounded to float16, in which the formats store them; zeros are whole numbers. A scale of
// MXFP4 is half of 2^(e - 2), e being the exponent of the group's largest weight (OCP Microscaling
// Formats 1.0, sec. 6.3): weights above 6 of its units become 6. One of NVFP4 is a twelfth of that
// weight, rounded to e4m3.
struct GroupScale {
  float scale = 1, zero = 0;
  float offset() const { return -scale * zero; }
};
GroupScale ScaleOf(const RoundingScheme& scheme, const float* values, size_t n);

// The nearest code.
int8_t RoundWeight(const CodeRange& range, GroupScale group, float value);

// One row: codes [n], scales and offsets [n / group, rounded up].
void RoundRow(const RoundingScheme& scheme, const float* values, size_t n, int8_t* codes,
              float* scales, float* offsets);

}  // namespace pinion
