#pragma once

#include <string>

#include "harness/results/results.h"

namespace pinion::harness {

// nullptr if the candidate's requests at that load were not timed.
const Distribution* FindDistribution(const Candidate& candidate, const std::string& metric,
                                     LoadLevel level);

// The largest of 0.95, 0.90 and 0.75 that it supports: all trials together have enough values for
// it (SamplesNeededForQuantile), and each of them has some beyond it (SamplesBeyondQuantile). For a
// median over trials makes a tail that none of them reaches no longer.
double TailQuantile(const Distribution& one);

// In the metric's unit; q in [0, 1], rounded to the nearest stored quantile. The distribution must
// have quantiles.
double ValueAt(const Distribution& one, double q);

}  // namespace pinion::harness
