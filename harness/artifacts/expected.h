#pragma once

#include <string>
#include <vector>

#include "harness/profile/profile.h"

namespace pinion::harness {

// One of a profile's expected values, as far as it can be read.
struct Expected {
  std::string metric, unit;
  std::string level;  // "8 clients", "2.5 requests/s", "the batch"
  double median = 0;
  std::string figure;    // "228.6 tokens/s", "2.9 GiB"
  std::string interval;  // "224 to 233.1 tokens/s"; empty if there is none
};

std::vector<Expected> ExpectedOf(const Profile& profile);

}  // namespace pinion::harness
