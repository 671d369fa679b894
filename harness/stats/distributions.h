#pragma once

#include <cstddef>

#include "harness/stats/estimate.h"

// Probabilities and quantiles of known distributions; the adapter of Boost.Math. Any thread.

namespace pinion::harness {

// P(Binomial(n, p) <= k); 0 <= p <= 1.
double BinomialAtMost(size_t n, double p, size_t k);

// Exact interval of a probability from `good` of `total`; all of [0, 1] if there are none.
// Source: Clopper and Pearson, Biometrika 26 (1934).
Interval ExactShareInterval(size_t good, size_t total, double level = 0.95);

// The value that a distribution stays below with this probability, which lies between 0 and 1:
// standard normal, and Student's t.
double NormalQuantile(double probability);
double StudentQuantile(double freedom, double probability);

}  // namespace pinion::harness
