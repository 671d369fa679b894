#include "harness/stats/estimate.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "harness/stats/distributions.h"

namespace pinion::harness {
namespace {

std::vector<double> Sorted(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// The chance that the median lies between the k-th smallest and the k-th largest of n samples.
double CoverageOfRank(size_t n, size_t k) { return 1 - 2 * BinomialAtMost(n, 0.5, k - 1); }

}  // namespace

double Median(std::span<const double> samples) {
  std::vector<double> values(samples.begin(), samples.end());
  return MedianInPlace(values);
}

double MedianInPlace(std::span<double> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  if (samples.size() % 2) return *middle;
  return (*std::max_element(samples.begin(), middle) + *middle) / 2;
}

double MedianAbsoluteDeviation(std::span<const double> samples) {
  const double median = Median(samples);
  std::vector<double> distances;
  for (double sample : samples) distances.push_back(std::abs(sample - median));
  return Median(distances);
}

double Quantile(std::span<const double> samples, double q) {
  CHECK(q >= 0 && q <= 1) << "quantile " << q;
  if (samples.empty()) return 0;
  const std::vector<double> sorted = Sorted(samples);
  const double position = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double ExpectedQuantile(std::span<const double> samples, double q) {
  if (samples.size() < 2) return Quantile(samples, q);
  const auto n = static_cast<double>(samples.size());
  return Quantile(samples, std::clamp((q * (n + 1) - 1) / (n - 1), 0.0, 1.0));
}

size_t SamplesBeyondQuantile(double q) {
  CHECK(q > 0 && q < 1) << "quantile " << q;
  constexpr double kRounding = 1e-9;
  return static_cast<size_t>(std::ceil(q / (1 - q) - kRounding));
}

std::optional<Interval> MedianInterval(std::span<const double> samples, double level) {
  const size_t n = samples.size();
  size_t k = 0, above = n / 2 + 1;  // rank k covers enough, unless it is 0; rank `above` does not
  while (above - k > 1) {
    const size_t middle = k + (above - k) / 2;
    (CoverageOfRank(n, middle) >= level ? k : above) = middle;
  }
  if (k == 0) return std::nullopt;
  const std::vector<double> sorted = Sorted(samples);
  return Interval{sorted[k - 1], sorted[n - k], CoverageOfRank(n, k)};
}

Estimate EstimateMedian(std::span<const double> samples, double level) {
  return {samples.size(), Median(samples), MedianAbsoluteDeviation(samples),
          MedianInterval(samples, level)};
}

double Lag1Autocorrelation(std::span<const double> samples) {
  if (samples.size() < 3) return 0;
  double sum = 0;
  for (double sample : samples) sum += sample;
  const double mean = sum / static_cast<double>(samples.size());
  double variance = 0, covariance = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    variance += (samples[i] - mean) * (samples[i] - mean);
    if (i > 0) covariance += (samples[i] - mean) * (samples[i - 1] - mean);
  }
  return variance > 0 ? covariance / variance : 0;
}

std::vector<double> AdjacentPairMedians(std::span<const double> samples) {
  std::vector<double> merged;
  for (size_t i = 0; i < samples.size(); i += 2)
    merged.push_back(Median(samples.subspan(i, std::min<size_t>(2, samples.size() - i))));
  return merged;
}

std::vector<double> MergeNeighbours(std::span<const double> samples) {
  if (samples.size() >= 20 && Lag1Autocorrelation(samples) > 0.3)
    return AdjacentPairMedians(samples);
  return {samples.begin(), samples.end()};
}

size_t SamplesNeededForQuantile(double q) {
  CHECK(q > 0 && q < 1) << "quantile " << q;
  return static_cast<size_t>(std::ceil(std::log(0.01) / std::log(q)));
}

std::optional<double> SupportedQuantile(std::span<const double> samples, double q) {
  if (samples.size() < SamplesNeededForQuantile(q)) return std::nullopt;
  return Quantile(samples, q);
}

}  // namespace pinion::harness
