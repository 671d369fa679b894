#pragma once

#include <set>
#include <string>

#include "engine/base/result.h"
#include "harness/space/definition.h"

// The conditions of a definition's axes ("when").

namespace pinion::harness {

// The axes, each behind those that its conditions name: a combination is made axis by axis, and a
// condition is judged by the values before it. Otherwise they keep their order. An error (kUsage)
// names an axis whose conditions depend on itself.
Result<Axes> BehindTheirConditions(const Axes& axes);

// Checks that every axis with conditions is among those that varied in some configuration. The
// error (kUsage) names the axis and its conditions.
Status CheckConditionsHold(const Axes& axes, const std::set<std::string>& varied);

}  // namespace pinion::harness
