#include "harness/space/conditions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Whether a condition of `axis` names one of the others that are not placed yet.
bool Waits(const Axis& axis, const Axes& unplaced) {
  return std::any_of(axis.when.begin(), axis.when.end(), [&](const Condition& condition) {
    return FindAxis(unplaced, condition.key) != nullptr;
  });
}

// "tensor_parallel is 2 or 4 and isa is avx2"
std::string ConditionText(const Axis& axis) {
  std::vector<std::string> texts;
  for (const Condition& condition : axis.when)
    texts.push_back(StrCat(condition.key, " is ", Join(condition.values, " or ")));
  return Join(texts, " and ");
}

}  // namespace

Result<Axes> BehindTheirConditions(const Axes& axes) {
  Axes placed, unplaced = axes;
  while (!unplaced.empty()) {
    const auto next = std::find_if(unplaced.begin(), unplaced.end(),
                                   [&](const Axis& axis) { return !Waits(axis, unplaced); });
    if (next == unplaced.end())
      return Fail(ErrorCode::kUsage,
                  StrCat("'", unplaced.front().key, "' in 'when' depends on itself: it varies if ",
                         ConditionText(unplaced.front()), "; take that condition out"));
    placed.push_back(std::move(*next));
    unplaced.erase(next);
  }
  return placed;
}

Status CheckConditionsHold(const Axes& axes, const std::set<std::string>& varied) {
  for (const Axis& axis : axes)
    if (!axis.when.empty() && !varied.count(axis.key))
      return Fail(ErrorCode::kUsage,
                  StrCat("'", axis.key, "' varies only if ", ConditionText(axis),
                         ", as 'when' says, and no configuration has that: give the values to "
                         "'axes', or take '",
                         axis.key, "' out"));
  return {};
}

}  // namespace pinion::harness
