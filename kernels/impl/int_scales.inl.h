#pragma once

// What turns codes into weights. Include the ISA's integers first.

#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

// The weights of kLanes outputs are scale * code + offset, with codes as stored.
struct LaneScales {
  Vec scale, offset;
};

LaneScales ScalesAt(const IntLayout& layout, const std::byte* scales, const float* own,
                    size_t lane) {
  const Vec lowest = Set(static_cast<float>(layout.lowest)), unit = Load(own + lane);
  if (layout.whole_rows()) return {unit, unit * lowest};
  if (layout.e2m1) {
    const Vec scale = WidenPowers(scales + lane) * unit;
    return {scale, scale * lowest};
  }
  const auto* groups = reinterpret_cast<const F16*>(scales);
  const Vec scale = WidenF16(groups + lane) * unit;
  return {scale, layout.has_offsets ? WidenF16(groups + kBlockN + lane) * unit : scale * lowest};
}

}  // namespace
}  // namespace pinion::kernels::impl
