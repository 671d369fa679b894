#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/quantised.h"

namespace pinion {

// How Pinion itself rounds a matrix to integers, or to eight-bit floats, each weight to the
// nearest.
struct RoundingScheme {
  int bits = 8;           // 4 or 8
  size_t group = 0;       // columns that share a scale; 0: whole rows
  bool symmetric = true;  // scale = absmax / highest code; else from the values' range
  bool e4m3 = false;      // with 8 bits, symmetric: codes are bytes of e4m3

  CodeRange range() const;
  size_t group_of(size_t columns) const { return group == 0 ? columns : group; }
};

// The weights that the codes of one group stand for: weight = scale * (code - zero). Scales of 4
// bits are rounded to float16, in which the formats store them; zeros are whole numbers.
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
