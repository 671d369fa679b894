#pragma once

#include <algorithm>
#include <vector>

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {

// Both sides of every vector edge, and a real width.
inline constexpr size_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100, 2048, 2055};
inline constexpr double kU = 0x1p-24;

// Values that end at an unmapped page.
struct Row : Guarded<float> {
  explicit Row(const std::vector<float>& values) : Guarded(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
};

}  // namespace pinion::kernels::testing
