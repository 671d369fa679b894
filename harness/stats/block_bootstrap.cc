#include "harness/stats/block_bootstrap.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/base/check.h"
#include "harness/stats/distributions.h"

namespace pinion::harness {
namespace {

constexpr double kLevel = 0.95;
const double kNormal = NormalQuantile((1 + kLevel) / 2);

// Windows h rows apart share a part 1 - h/L of their rows, so that is about how alike they are. The
// variance of a mean adds this up over all h; blocks of L rows contain only a part 1 - h/L of the
// pairs that lie h apart: integral of (1 - x)^2 = 1/3 instead of integral of 1 - x = 1/2.
constexpr double kPairsLost = 1.5;

struct Sum {
  double count = 0, value = 0;
};

// before[r]: everything that begins before row r of the series written down twice, so that a block
// that wraps round needs no special case.
std::vector<Sum> RunningSums(std::span<const WindowValue> samples, size_t rows) {
  std::vector<Sum> by_row(rows);
  for (const WindowValue& one : samples) {
    CHECK(one.offset < rows) << "offset " << one.offset << " of " << rows << " rows";
    by_row[one.offset].count += 1;
    by_row[one.offset].value += one.value;
  }
  std::vector<Sum> before(2 * rows + 1);
  for (size_t r = 0; r < 2 * rows; ++r)
    before[r + 1] = {before[r].count + by_row[r % rows].count,
                     before[r].value + by_row[r % rows].value};
  return before;
}

double VarianceOf(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double n = static_cast<double>(values.size()), mean = n > 0 ? sum / n : 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return n > 1 ? squares / (n - 1) : 0;
}

}  // namespace

BlockMean MeanByBlocks(std::span<const WindowValue> samples, size_t rows, double window_rows,
                       int resamples, uint64_t seed) {
  CHECK(window_rows >= 1) << "windows of " << window_rows << " rows";
  BlockMean result;
  if (samples.empty()) return result;
  const std::vector<Sum> before = RunningSums(samples, rows);
  const size_t block = std::min(rows, static_cast<size_t>(std::lround(window_rows)));
  result.n = samples.size();
  result.stretches = static_cast<double>(rows) / static_cast<double>(block);
  result.mean = before[rows].value / before[rows].count;

  std::mt19937_64 random(seed);
  std::vector<double> means;
  for (int k = 0; k < resamples; ++k) {
    Sum drawn;
    for (size_t taken = 0; taken < rows; taken += block) {
      const size_t from = random() % rows;  // the bias of modulo: rows / 2^64
      const size_t to = from + std::min(block, rows - taken);
      drawn.count += before[to].count - before[from].count;
      drawn.value += before[to].value - before[from].value;
    }
    if (drawn.count > 0) means.push_back(drawn.value / drawn.count);
  }
  result.standard_error = std::sqrt(kPairsLost * VarianceOf(means));
  return result;
}

std::optional<double> DesignEffect(const BlockMean& share) {
  const double n = static_cast<double>(share.n);
  const double rarer = n * std::min(share.mean, 1 - share.mean);
  if (rarer < kMinOccurrences - 0.5) return std::nullopt;  // counts, up to rounding
  const double independent = share.mean * (1 - share.mean) / n;
  return std::max(1.0, share.standard_error * share.standard_error / independent);
}

double EffectiveSamples(const BlockMean& share, std::optional<double> design_effect) {
  const double n = static_cast<double>(share.n), least = std::min(n, share.stretches);
  return design_effect ? std::max(least, n / *design_effect) : least;
}

Interval ShareInterval(double share, double samples) {
  if (samples <= 0) return {0, 1, kLevel};
  const double z2 = kNormal * kNormal / samples;
  const double middle = (share + z2 / 2) / (1 + z2);
  const double reach =
      kNormal * std::sqrt(share * (1 - share) / samples + z2 / (4 * samples)) / (1 + z2);
  return {std::max(0.0, middle - reach), std::min(1.0, middle + reach), kLevel};
}

Interval MeanInterval(const BlockMean& mean) {
  const double reach = kNormal * mean.standard_error;
  return {mean.mean - reach, mean.mean + reach, kLevel};
}

}  // namespace pinion::harness
