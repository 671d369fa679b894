#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "harness/stats/verdict.h"

namespace pinion::harness {

// A point in two quantities: the logs of both by round, where more is better.
struct ParetoPoint {
  size_t load = 0;  // points under one load share the scale of their noise
  ByRound first, second;
};

enum class Front {
  kOn,        // no other point has better estimates in both quantities
  kPossible,  // one has, but the rounds that both have do not tell them apart
  kOff,       // one is better in both beyond the intervals of its leads: the point is dominated
};
const char* Name(Front front);  // "on", "possible", "off"

struct FrontPlace {
  Front front = Front::kOn;
  std::optional<size_t> beaten_by;  // if it is not on the front: one that has the better estimates
};

// Which points no other one dominates.
//
// One dominates another if it is better in both quantities. Both leads are paired within rounds;
// the interval of each is that of the median from order statistics (EstimateRatio), or, if the
// rounds are too few for one, that of Student's t with kFreedom degrees of freedom and the scale of
// the load's noise, as in the race. A point is called dominated if both intervals of one rival lie
// above 0. The hypothesis that the rival is not better is then rejected in each quantity, so no
// correction is needed between the two (Berger, Technometrics 24, 1982). Each one-sided test is
// made at kFamilyLevel / rivals: a point that belongs to the front is called dominated in at most
// kFamilyLevel of all cases, with any number of rivals (Bonferroni).
std::vector<FrontPlace> ParetoFront(std::span<const ParetoPoint> points);

}  // namespace pinion::harness
