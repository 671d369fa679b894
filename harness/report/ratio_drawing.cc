#include "harness/report/ratio_drawing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace pinion::harness {

Html DrawRatio(const Estimate& ratio, double floor, double reach) {
  const auto x = [&](double value) {
    return 4 + (std::clamp((value - 1) / reach, -1.0, 1.0) + 1) * 52;
  };
  const double low = x(ratio.interval ? ratio.interval->low : ratio.median);
  const double high = x(ratio.interval ? ratio.interval->high : ratio.median);
  char svg[320];
  std::snprintf(svg, sizeof svg,
                "<svg class=\"ratio\" aria-hidden=\"true\"><path class=\"floor\" "
                "d=\"M%.0f 7H%.0f\"/><path class=\"zero\" d=\"M56 0V14\"/><path "
                "d=\"M%.1f 7H%.1f\"/><circle cx=\"%.1f\" cy=\"7\" r=\"3\"/></svg>",
                x(1 - floor), x(1 + floor), low, high, x(ratio.median));
  return Drawing(svg);
}

double FittingReach(double largest) { return std::clamp(largest, 0.05, 0.5); }

double DistanceFromOne(const Estimate& ratio) {
  const double high = ratio.interval ? ratio.interval->high : ratio.median;
  return std::max(std::abs(ratio.median - 1), std::abs(high - 1));
}

}  // namespace pinion::harness
