#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/stats/load_level.h"

namespace pinion::harness {

// One metric of all requests, or of all gaps, at one load.
struct Distribution {
  std::string metric;  // "ttft_s", "itl_s"
  LoadLevel level;
  size_t n = 0;                   // over all trials
  std::vector<double> quantiles;  // 0 %, 5 %, ..., 100 %: of each the median over the trials
  size_t fewest = 0;              // of one load of a trial; 0: there is one load, of n
};

}  // namespace pinion::harness
