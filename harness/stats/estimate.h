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

// What repeated samples of one quantity say about its median.
struct Estimate {
  size_t n = 0;
  double median = 0;
  double mad = 0;                    // median absolute deviation from the median
  std::optional<Interval> interval;  // 95 % where nothing else is said; none for n < 6
};

// Smallest number of samples for which an interval of the median exists at 95 %: with n samples
// [min, max] misses with probability 2 * 2^-n, so n = 6 covers 96.9 % and n = 5 only 93.8 %.
inline constexpr size_t kMinSamples = 6;

// log(n!), for probabilities that would underflow. Any thread.
double LogFactorial(size_t n);

// 0 for an empty sample; the mean of the two middle ones where n is even.
double Median(std::span<const double> samples);
// The same for samples whose order need not be kept: nothing is allocated.
double MedianInPlace(std::span<double> samples);
double MedianAbsoluteDeviation(std::span<const double> samples);

// The q-quantile (0 <= q <= 1), linear between order statistics (Hyndman & Fan's type 7, as NumPy).
double Quantile(std::span<const double> samples, double q);

// The narrowest symmetric pair of order statistics that covers the median with probability >=
// level: P(x(k) <= median <= x(n+1-k)) = 1 - 2 P(Binomial(n, 1/2) < k), exact for any continuous
// distribution of independent samples. nullopt where even [min, max] does not reach the level.
// Source: Conover, Practical Nonparametric Statistics, sec. 3.2.
std::optional<Interval> MedianInterval(std::span<const double> samples, double level = 0.95);

Estimate EstimateMedian(std::span<const double> samples, double level = 0.95);

// Correlation of neighbours; 0 where n < 3 or nothing varies.
double Lag1Autocorrelation(std::span<const double> samples);

// Medians of adjacent pairs (an odd last one stays alone): halves n, and most of the correlation.
std::vector<double> AdjacentPairMedians(std::span<const double> samples);

// Samples below which the q-quantile is not printed: the largest of n must lie above it with
// probability 99 %, 1 - q^n >= 0.99. p90: 44, p95: 90, p99: 459.
size_t SamplesNeededForQuantile(double q);

// The q-quantile where the sample supports it.
std::optional<double> SupportedQuantile(std::span<const double> samples, double q);

}  // namespace pinion::harness
