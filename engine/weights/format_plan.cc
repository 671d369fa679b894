#include "engine/weights/format_plan.h"

#include <algorithm>
#include <numeric>

namespace pinion {
namespace {

// If a cut leaves groups of unequal sizes, they are packed in pieces of this many columns. Wider
// pieces would need more padding (half of a group's last piece, on average), narrower ones more
// scales.
constexpr size_t kPieceColumns = 32;

// The columns of each group, counted within the share.
std::vector<ColumnOrder> GroupColumns(const std::vector<uint32_t>& group_of, size_t column,
                                      size_t k) {
  std::vector<ColumnOrder> groups;
  for (size_t i = 0; i < k; ++i) {
    const uint32_t group = group_of[column + i];
    if (group >= groups.size()) groups.resize(group + 1);
    groups[group].push_back(static_cast<uint32_t>(i));
  }
  std::erase_if(groups, [](const ColumnOrder& each) { return each.empty(); });
  return groups;
}

IntegerShare Regroup(const IntegerFormat& format, size_t column, size_t k) {
  const auto groups = GroupColumns(*format.group_of, column, k);
  const bool whole = std::all_of(groups.begin(), groups.end() - 1, [&](const ColumnOrder& each) {
    return each.size() == format.group;
  });
  const size_t width = whole && groups.back().size() <= format.group
                           ? format.group
                           : std::gcd(format.group, kPieceColumns);
  ColumnOrder order;
  for (const ColumnOrder& each : groups) {
    order.insert(order.end(), each.begin(), each.end());
    order.resize(kernels::RoundUp(order.size(), width), kernels::kNoColumn);
  }
  return {{format.bits, order.size(), width, format.lowest, format.has_offsets},
          std::make_shared<const ColumnOrder>(std::move(order))};
}

std::optional<IntegerShare> Cut(const IntegerFormat& format, size_t column, size_t k) {
  if (format.group_of) return Regroup(format, column, k);
  kernels::IntLayout layout{format.bits,      k, k, format.lowest, format.has_offsets,
                            format.scale_type};
  layout.e4m3 = format.e4m3();
  // A cut may lie inside a group: groups become narrow enough for it to fall between two of them.
  const size_t group = std::gcd(format.group, column);
  if (!format.e2m1() && (format.group == 0 || group >= k)) {
    if (format.has_offsets) layout.group = kernels::RoundUp(k, kernels::kPadK);
    return IntegerShare{layout, nullptr};
  }
  layout.group = group;
  if (layout.group % kSmallestIntGroup != 0) return {};
  return IntegerShare{layout, nullptr};
}

}  // namespace

const IntegerFormat* FormatPlan::Find(int layer, MatrixRole role) const {
  const auto found = formats_.find({layer, role});
  return found == formats_.end() ? nullptr : &found->second;
}

void FormatPlan::Set(int layer, MatrixRole role, const IntegerFormat& format) {
  formats_[{layer, role}] = format;
}

size_t FormatPlan::Count(IntegerProduct product) const {
  return static_cast<size_t>(
      std::count_if(formats_.begin(), formats_.end(),
                    [&](const auto& entry) { return entry.second.product == product; }));
}

size_t FormatPlan::CountRoundedToE4m3() const {
  return static_cast<size_t>(std::count_if(formats_.begin(), formats_.end(), [](const auto& entry) {
    return entry.second.e4m3_rounding.has_value();
  }));
}

std::optional<IntegerShare> ShareOf(const IntegerFormat& format, size_t column, size_t k) {
  auto share = Cut(format, column, k);
  if (share && format.outliers_apart) share->layout.outliers = kernels::MostOutliers(k);
  return share;
}

}  // namespace pinion
