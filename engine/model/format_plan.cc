#include "engine/model/format_plan.h"

#include <numeric>

namespace pinion {

const IntegerFormat* FormatPlan::Find(int layer, MatrixRole role) const {
  const auto found = formats_.find({layer, role});
  return found == formats_.end() ? nullptr : &found->second;
}

void FormatPlan::Set(int layer, MatrixRole role, const IntegerFormat& format) {
  formats_[{layer, role}] = format;
}

std::optional<kernels::IntLayout> LayoutOf(const IntegerFormat& format, size_t column, size_t k) {
  kernels::IntLayout layout{format.bits, k, k, format.lowest, format.has_offsets};
  const size_t group = std::gcd(format.group, column);  // a cut may go through a group's middle
  if (format.group == 0 || group >= k) {
    if (format.has_offsets) layout.group = kernels::RoundUp(k, kernels::kPadK);
    return layout;
  }
  layout.group = group;
  if (layout.group % kSmallestIntGroup != 0) return {};
  return layout;
}

}  // namespace pinion
