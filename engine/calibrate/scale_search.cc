#include "engine/calibrate/scale_search.h"

#include <algorithm>
#include <cmath>

#include "engine/calibrate/scale_trial.h"

namespace pinion {
namespace {

constexpr int kStrengths = 10;
// A smaller gain on the sample does not carry over to other text.
constexpr double kWorthIt = 0.95;
// Keeps channels that hardly ever carry anything from being scaled without limit.
constexpr float kSmallestFactor = 1e-4f, kSmallestMagnitude = 1e-5f;

// widest: the largest magnitude of each channel's weights.
std::vector<float> Factors(const ScaleChoice& choice, const InputStatistics& all,
                           const std::vector<float>& widest, float strength) {
  std::vector<float> factors(all.k);
  for (size_t i = 0; i < all.k; ++i) {
    const float x = choice.rule == ScaleRule::kAwq
                        ? static_cast<float>(all.sums[i] / static_cast<double>(all.rows))
                        : all.largest[i];
    factors[i] = std::pow(std::max(x, kSmallestMagnitude), strength);
    if (choice.rule == ScaleRule::kSmoothQuant)
      factors[i] /= std::pow(std::max(widest[i], kSmallestMagnitude), 1 - strength);
  }
  // Only the ratios of factors matter, so their range is centred at 1.
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  const float middle = std::sqrt(*low * *high);
  for (float& factor : factors) {
    factor = std::max(factor / middle, kSmallestFactor);
    if (choice.powers_of_two) factor = std::exp2(std::nearbyint(std::log2(factor)));
  }
  return factors;
}

std::vector<float> Widest(size_t k, const EachReader& each_reader) {
  std::vector<float> widest(k);
  each_reader([&](const ScaledMatrix& matrix) {
    for (size_t row = 0; row < matrix.n; ++row)
      for (size_t i = 0; i < k; ++i)
        widest[i] = std::max(widest[i], std::abs(matrix.weights[row * k + i]));
  });
  return widest;
}

}  // namespace

std::vector<float> SearchScales(const kernels::Table& table, Ranks& ranks,
                                const ScaleChoice& choice, const InputStatistics& all,
                                const EachReader& each_reader) {
  // The first candidate leaves everything unscaled.
  std::vector<std::vector<float>> candidates{std::vector<float>(all.k, 1.0f)};
  if (all.rows == 0) return candidates[0];
  std::vector<float> widest;
  if (choice.rule == ScaleRule::kSmoothQuant) widest = Widest(all.k, each_reader);
  for (int step = 1; step <= kStrengths; ++step)
    candidates.push_back(Factors(choice, all, widest, static_cast<float>(step) / kStrengths));
  std::vector<double> errors(candidates.size());
  each_reader([&](const ScaledMatrix& matrix) {
    if (matrix.inputs.sample_rows == 0) return;
    ScaleTrial trial(table, ranks, choice, matrix);
    for (size_t i = 0; i < candidates.size(); ++i) errors[i] += trial.Error(candidates[i]);
  });
  errors[0] *= kWorthIt;
  const auto best = std::min_element(errors.begin(), errors.end()) - errors.begin();
  return candidates[static_cast<size_t>(best)];
}

}  // namespace pinion
