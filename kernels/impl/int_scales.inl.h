#pragma once

// What turns codes into weights. Include the ISA's integers first.

#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

// The weights of kLanes outputs are scale * code + offset, with codes as stored.
struct LaneScales {
  Vec scale, offset;
  Vec WeightsOf(Vec codes) const { return Fma(codes, scale, offset); }
  // A scale may have all bits of a float, so that 12 times it is rounded.
  Vec WeightsOfE2M1(Vec codes) const {
    return (codes + Set(static_cast<float>(kLowestE2M1))) * scale;
  }
};

LaneScales ScalesAt(const IntLayout& layout, const std::byte* scales, const float* own,
                    size_t lane) {
  const Vec lowest = Set(static_cast<float>(layout.lowest)), unit = Load(own + lane);
  if (layout.whole_rows()) return {unit, unit * lowest};
  if (layout.scale_type == ScaleType::kPower) return {WidenPowers(scales + lane) * unit, Set(0)};
  if (layout.scale_type == ScaleType::kE4m3) return {WidenE4m3(scales + lane) * unit, Set(0)};
  const auto* groups = reinterpret_cast<const F16*>(scales);
  const Vec scale = WidenF16(groups + lane) * unit;
  return {scale, layout.has_offsets ? WidenF16(groups + kBlockN + lane) * unit : scale * lowest};
}

}  // namespace
}  // namespace pinion::kernels::impl
