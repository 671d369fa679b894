#include "engine/sample/select.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace pinion {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// 152k values have 594 block maxima; the 50 best lie in at most some 50 blocks.
constexpr size_t kBlock = 256;

std::span<const float> BlockOf(std::span<const float> values, size_t block) {
  const size_t begin = block * kBlock;
  return values.subspan(begin, std::min(kBlock, values.size() - begin));
}

std::vector<float> BlockMaxima(const kernels::Table& table, std::span<const float> values) {
  std::vector<float> maxima;
  for (size_t block = 0; block * kBlock < values.size(); ++block) {
    const auto of = BlockOf(values, block);
    maxima.push_back(table.max(of.data(), of.size()));
  }
  return maxima;
}

// A value that at least k values reach: the k-th largest block maximum.
float ReachedBy(size_t k, std::vector<float> maxima) {
  if (maxima.size() < k) return kLowest;
  const auto kth = maxima.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<>());
  return *kth;
}

// Cuts `buffer` to its k best, with the worst of them last.
void KeepBest(std::vector<Candidate>& buffer, size_t k) {
  if (buffer.size() <= k) return;
  std::nth_element(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(k - 1), buffer.end(),
                   Better);
  buffer.resize(k);
}

// Of candidates with equal weight, in order of id, the last one needed to reach `mass`.
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

std::vector<Candidate> Best(const kernels::Table& table, std::span<const float> values, size_t k) {
  const std::vector<float> maxima = BlockMaxima(table, values);
  std::vector<Candidate> buffer;
  const size_t limit = 2 * std::min(k, values.size()) + 256;  // amortises KeepBest
  buffer.reserve(limit);
  float floor = ReachedBy(k, maxima);
  bool full = false;  // `floor` is the k-th best so far: later equals lose by their id
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < floor) continue;
    const auto of = BlockOf(values, block);
    for (size_t i = 0; i < of.size(); ++i) {
      if (full ? !(of[i] > floor) : !(of[i] >= floor)) continue;
      buffer.push_back({of[i], static_cast<int32_t>(block * kBlock + i)});
      if (buffer.size() < limit) continue;
      KeepBest(buffer, k);
      full = true;
      floor = buffer.back().value;
    }
  }
  KeepBest(buffer, k);
  std::sort(buffer.begin(), buffer.end(), Better);
  return buffer;
}

Candidate NucleusBorder(std::span<Candidate> weights, double mass) {
  // Quickselect by weight: partition into heavier than the pivot, equal and lighter.
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
