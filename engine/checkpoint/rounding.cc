#include "engine/checkpoint/rounding.h"

#include <algorithm>
#include <cmath>

#include "kernels/types.h"

namespace pinion {

using kernels::ScaleType;

namespace {

// For codes that are twice the values of e2m1, whose largest exponent is 2.
float PowerOfTwoScale(float largest) {
  return largest > 0 ? std::ldexp(1.0f, std::ilogb(largest) - 2 - 1) : 1;
}

// The same, but the largest weight becomes 12.
float E4m3Scale(float largest) {
  const float scale = kernels::ToFloat(kernels::ToE4m3(largest / 12 / kNvfp4Unit));
  return (scale > 0 ? scale : 1) * kNvfp4Unit;
}

// The nearest of 0, 1, 2, 3, 4, 6, 8 and 12 with the value's sign; halves go to the even mantissa.
int8_t NearestE2m1(float value) {
  const float size = std::abs(value);
  const float step = size <= 4 ? 1 : size <= 8 ? 2 : 4;
  const float code = std::min(step * std::nearbyint(size / step), 12.0f);
  return static_cast<int8_t>(std::copysign(code, value));
}

}  // namespace

CodeRange RoundingScheme::range() const {
  if (kind == CodeKind::kE4m3) return {-128, 127, false, ScaleType::kF16, true};
  if (kind == CodeKind::kMxfp4) return {-12, 12, false, ScaleType::kPower};
  if (kind == CodeKind::kNvfp4) return {-12, 12, false, ScaleType::kE4m3};
  const int codes = 1 << bits;
  return symmetric ? CodeRange{-codes / 2, codes / 2 - 1, false} : CodeRange{0, codes - 1, true};
}

GroupScale ScaleOf(const RoundingScheme& scheme, const float* values, size_t n) {
  const auto [least, most] = std::minmax_element(values, values + n);
  // The range always includes 0, so that a weight of 0 has an exact code.
  const float low = std::min(*least, 0.0f), high = std::max(*most, 0.0f);
  if (scheme.kind == CodeKind::kMxfp4) return {PowerOfTwoScale(std::max(-low, high)), 0};
  if (scheme.kind == CodeKind::kNvfp4) return {E4m3Scale(std::max(-low, high)), 0};
  const float highest = scheme.kind == CodeKind::kE4m3 ? kernels::kLargestE4m3
                                                       : static_cast<float>(scheme.range().highest);
  float scale = scheme.symmetric ? std::max(-low, high) / highest : (high - low) / highest;
  if (scheme.bits == 4) scale = kernels::ToFloat(kernels::ToF16(scale));
  // A group of zeros, or one whose scale vanishes in float16.
  if (!(scale > 0)) scale = 1;
  return {scale, scheme.symmetric ? 0 : std::nearbyint(-low / scale)};
}

int8_t RoundWeight(const CodeRange& range, GroupScale group, float value) {
  if (range.e4m3) return static_cast<int8_t>(kernels::ToE4m3(value / group.scale).bits);
  if (range.scale_type != ScaleType::kF16) return NearestE2m1(value / group.scale);
  // Halves go to the even code, as in torch.round, with which other tools quantise.
  const float code = std::nearbyint(value / group.scale) + group.zero;
  return static_cast<int8_t>(
      std::clamp(code, static_cast<float>(range.lowest), static_cast<float>(range.highest)));
}

void RoundRow(const RoundingScheme& scheme, const float* values, size_t n, int8_t* codes,
              float* scales, float* offsets) {
  const size_t group = scheme.group_of(n);
  const CodeRange range = scheme.range();
  for (size_t begin = 0, at = 0; begin < n; begin += group, ++at) {
    const size_t count = std::min(group, n - begin);
    const GroupScale scale = ScaleOf(scheme, values + begin, count);
    for (size_t i = begin; i < begin + count; ++i) codes[i] = RoundWeight(range, scale, values[i]);
    scales[at] = scale.scale;
    offsets[at] = scale.offset();
  }
}

}  // namespace pinion
