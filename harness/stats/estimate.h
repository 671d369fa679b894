#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace pinion::harness {

struct Interval {
  double low = 0, high = 0;
  double coverage = 0;  // exact, >= the level asked for
  bool Holds(double value) const { return low <= value && value <= high; }
};

// The median of one quantity, estimated from repeated samples.
struct Estimate {
  size_t n = 0;
  double median = 0;
  double mad = 0;                    // median absolute deviation from the median
  std::optional<Interval> interval;  // at 95 % unless another level is asked for; none for n < 6
};

// Smallest number of samples for which an interval of the median exists at 95 %: with n samples
// [min, max] misses with probability 2 * 2^-n, so n = 6 covers 96.9 % and n = 5 only 93.8 %.
inline constexpr size_t kMinSamples = 6;

// 0 for an empty sample; the mean of the two middle values if n is even.
double Median(std::span<const double> samples);
// The same without allocation; reorders the samples.
double MedianInPlace(std::span<double> samples);
double MedianAbsoluteDeviation(std::span<const double> samples);

// The q-quantile (0 <= q <= 1), linear between order statistics (Hyndman & Fan's type 7, as NumPy).
double Quantile(std::span<const double> samples, double q);

// The value below which a share q of further samples is expected to lie (Hyndman & Fan's type 6),
// or the extreme if the samples are too few to reach so far: they are if fewer than
// SamplesBeyondQuantile. Quantile promises too much of the tails of few samples: about 9 % of all
// others lie above its 95 % of 17.
double ExpectedQuantile(std::span<const double> samples, double q);

// The fewest samples of which one is expected to lie beyond the q-quantile, above the middle: 9 for
// q = 0.9, 19 for 0.95.
size_t SamplesBeyondQuantile(double q);

// The narrowest symmetric pair of order statistics that covers the median with probability >=
// level: P(x(k) <= median <= x(n+1-k)) = 1 - 2 P(Binomial(n, 1/2) < k), exact for any continuous
// distribution of independent samples. nullopt if even [min, max] does not reach the level.
// Source: Conover, Practical Nonparametric Statistics, sec. 3.2.
std::optional<Interval> MedianInterval(std::span<const double> samples, double level = 0.95);

Estimate EstimateMedian(std::span<const double> samples, double level = 0.95);

// Correlation of neighbours; 0 if n < 3 or nothing varies.
double Lag1Autocorrelation(std::span<const double> samples);

// Medians of adjacent pairs (an odd last sample stays alone): halves n and removes most of the
// correlation.
std::vector<double> AdjacentPairMedians(std::span<const double> samples);

// AdjacentPairMedians of at least 20 samples whose lag-1 autocorrelation exceeds 0.3, so that
// neighbours that resemble each other do not count as independent; else the samples.
std::vector<double> MergeNeighbours(std::span<const double> samples);

// The number of samples from which the q-quantile is printed: the largest of n must lie above it
// with probability 99 %, 1 - q^n >= 0.99. p90: 44, p95: 90, p99: 459.
size_t SamplesNeededForQuantile(double q);

// The q-quantile; nullopt if the sample is too small for it.
std::optional<double> SupportedQuantile(std::span<const double> samples, double q);

}  // namespace pinion::harness
