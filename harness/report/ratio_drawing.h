#pragma once

#include "harness/report/html.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {

// A ratio with its interval on a line whose middle is 1, right is better; the band is the floor.
// `floor` and `reach`, how far the line goes to either side, are fractions. Its size is page.css's:
// 112 x 14. Short, because a page may hold 1500 of them.
Html DrawRatio(const Estimate& ratio, double floor, double reach);

// A reach that fits: as far as the largest of them, but neither so little that noise looks large
// nor so much that one outlier squeezes all others flat. `largest`: a fraction.
double FittingReach(double largest);
// How far a ratio and its interval are from 1, as a fraction.
double DistanceFromOne(const Estimate& ratio);

}  // namespace pinion::harness
