#pragma once

#include <span>
#include <vector>

namespace pinion::harness {

// One of several tests that may be wrong together in at most a share of all cases.
struct Corrected {
  bool rejected = false;  // there is a difference
  double level = 0;       // of confidence at which this test was decided
};

// Holm's procedure: the smallest p-value is held to family / m, the next to family / (m - 1), and
// so on until one is not rejected; the others are then decided at that one's level, too. In the
// order of `p_values`. Source: Holm, Scandinavian Journal of Statistics 6 (1979).
std::vector<Corrected> Holm(std::span<const double> p_values, double family);

// The two-sided p-value of "the median is 0" by the signs alone, exact for independent samples: it
// is at most 1 - level if and only if MedianInterval at this level excludes 0. Zeros count against
// a difference. 1 for no samples.
double SignTest(std::span<const double> samples);

}  // namespace pinion::harness
