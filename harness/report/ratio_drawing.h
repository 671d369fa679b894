#pragma once

#include "harness/report/html.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {

// Draws a ratio with its interval on a line whose middle is 1; right is better, the band is the
// floor. `floor` and `reach` (how far the line goes to either side) are fractions. page.css sets
// its size, 112 x 14. The markup is short because a page may hold 1500 of them.
Html DrawRatio(const Estimate& ratio, double floor, double reach);

// The reach for drawings whose largest distance is `largest` (a fraction), but neither so small
// that noise looks large nor so large that one outlier squeezes all others flat.
double FittingReach(double largest);
// How far a ratio and its interval are from 1, as a fraction.
double DistanceFromOne(const Estimate& ratio);

}  // namespace pinion::harness
