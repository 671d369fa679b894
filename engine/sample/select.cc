#include "engine/sample/select.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pinion {
namespace {

// Cuts `buffer` to its k best; the worst of them stands last.
void KeepBest(std::vector<Candidate>& buffer, size_t k) {
  if (buffer.size() <= k) return;
  std::nth_element(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(k - 1), buffer.end(),
                   Better);
  buffer.resize(k);
}

// Of equal weights, in order of id, the last that is needed to reach `mass`.
Candidate BorderAmongEquals(std::span<Candidate> equals, double mass) {
  const double weight = equals.front().value;
  size_t needed = equals.size();
  if (weight > 0) {
    const double count = std::ceil(mass / weight);
    if (count < static_cast<double>(needed))
      needed = std::max<size_t>(1, static_cast<size_t>(count));
  }
  const auto last = equals.begin() + static_cast<ptrdiff_t>(needed - 1);
  std::nth_element(equals.begin(), last, equals.end(), Better);
  return *last;
}

double Sum(std::span<const Candidate> weights) {
  double sum = 0;
  for (const Candidate& candidate : weights) sum += candidate.value;
  return sum;
}

float MedianOfThree(std::span<const Candidate> weights) {
  const float a = weights.front().value, b = weights[weights.size() / 2].value,
              c = weights.back().value;
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

}  // namespace

std::vector<Candidate> Best(std::span<const float> values, size_t k) {
  std::vector<Candidate> buffer;
  const size_t limit = 2 * std::min(k, values.size()) + 256;  // amortises KeepBest
  buffer.reserve(limit);
  bool full = false;  // `floor` is the k-th best so far: later equals lose by their id
  float floor = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (full ? !(values[i] > floor) : std::isnan(values[i])) continue;
    buffer.push_back({values[i], static_cast<int32_t>(i)});
    if (buffer.size() < limit) continue;
    KeepBest(buffer, k);
    full = true;
    floor = buffer.back().value;
  }
  KeepBest(buffer, k);
  std::sort(buffer.begin(), buffer.end(), Better);
  return buffer;
}

Candidate NucleusBorder(std::span<Candidate> weights, double mass) {
  // Quickselect by weight: what is heavier than the pivot, equal to it, lighter.
  while (true) {
    const float pivot = MedianOfThree(weights);
    const auto equal = std::partition(weights.begin(), weights.end(),
                                      [pivot](const Candidate& c) { return c.value > pivot; });
    const auto lighter = std::partition(equal, weights.end(),
                                        [pivot](const Candidate& c) { return c.value == pivot; });
    const std::span heavier_part(weights.begin(), equal), equal_part(equal, lighter),
        lighter_part(lighter, weights.end());
    const double heavier_mass = Sum(heavier_part);
    const double equal_mass = static_cast<double>(pivot) * static_cast<double>(equal_part.size());
    if (!heavier_part.empty() && heavier_mass >= mass) {
      weights = heavier_part;
    } else if (lighter_part.empty() || heavier_mass + equal_mass >= mass) {
      return BorderAmongEquals(equal_part, mass - heavier_mass);
    } else {
      mass -= heavier_mass + equal_mass;
      weights = lighter_part;
    }
  }
}

}  // namespace pinion
