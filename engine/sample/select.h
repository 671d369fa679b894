#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace pinion {

struct Candidate {
  float value = 0;
  int32_t id = 0;
};

// Larger values first; of equal ones the lower id.
inline bool Better(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The k best values, best first; fewer if there are fewer. None is NaN; k >= 1.
// One vectorised pass over `values`, then a second look only at blocks that can hold one of the
// best: only the result is sorted.
std::vector<Candidate> Best(const kernels::Table& table, std::span<const float> values, size_t k);

// The last of the best candidates that together weigh `mass` (the smallest such set; all of them
// if they weigh less). Weights >= 0, at least one candidate; reorders them. Expected linear
// time. This is the border of top-p sampling (Holtzman et al., arXiv:1904.09751, sec. 3.1).
Candidate NucleusBorder(std::span<Candidate> weights, double mass);

}  // namespace pinion
