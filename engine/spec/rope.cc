#include "engine/spec/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// Llama 3.1's stretching: long waves are slowed by `factor`, short ones are kept, those in between
// are blended. Source: transformers, modeling_rope_utils.py, _compute_llama3_parameters.
void StretchLlama3(const RopeSpec& rope, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    // Turns within the original length.
    const double turns = rope.original_positions * frequency / (2 * std::numbers::pi);
    const double range = rope.high_freq_factor - rope.low_freq_factor;
    const double above = turns - rope.low_freq_factor;  // without a range: kept or slowed (Llama 4)
    const double keep = range > 0 ? std::clamp(above / range, 0.0, 1.0) : above > 0 ? 1 : 0;
    frequency = (1 - keep) * frequency / rope.factor + keep * frequency;
  }
}

// Long waves are slowed by `factor`, short ones are kept, those in between are blended by their
// index.
// Source: Peng et al., arXiv:2309.00071, sec. 3.2; transformers, modeling_rope_utils.py,
// _compute_yarn_parameters.
void StretchYarn(const RopeSpec& rope, std::vector<double>& frequencies) {
  // The index of the pair that turns this often within the original length.
  const auto pair_of = [&](double turns) {
    return rope.dim * std::log(rope.original_positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.dim - 1.0);
  // Keeps the division below from being 0 / 0; the reference's value.
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= 1 - slowed + slowed / rope.factor;
  }
}

// A base that slows the longest wave by as much as the sequence is longer than in training.
// Source: transformers, modeling_rope_utils.py, _compute_dynamic_ntk_parameters.
double DynamicTheta(const RopeSpec& rope, int longest) {
  const double length = std::max<double>(longest, rope.original_positions);
  const double stretch = rope.factor * length / rope.original_positions - (rope.factor - 1);
  return rope.theta * std::pow(stretch, rope.dim / (rope.dim - 2.0));
}

// Slows each wave by a factor of its own: one set up to the training length, another beyond it.
void StretchLong(const RopeSpec& rope, int longest, std::vector<double>& frequencies) {
  const auto& factors = longest > rope.original_positions ? rope.long_factors : rope.short_factors;
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

// The first part of the waves turns as if all did, slowed by `factor`; the rest stands still.
// Source: transformers, modeling_rope_utils.py, _compute_proportional_rope_parameters.
void KeepPart(const RopeSpec& rope, std::vector<double>& frequencies) {
  const auto turning = static_cast<size_t>(rope.part * rope.dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = i < turning ? frequencies[i] / rope.factor : 0;
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeSpec& rope, int longest) {
  const double theta = rope.type == "dynamic" ? DynamicTheta(rope, longest) : rope.theta;
  std::vector<double> frequencies(static_cast<size_t>(rope.dim) / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rope.dim);
  if (rope.type == "llama3") StretchLlama3(rope, frequencies);
  if (rope.type == "yarn") StretchYarn(rope, frequencies);
  if (rope.type == "longrope") StretchLong(rope, longest, frequencies);
  if (rope.type == "proportional") KeepPart(rope, frequencies);
  // A longer sequence is squeezed into the positions seen in training.
  if (rope.type == "linear")
    for (double& frequency : frequencies) frequency /= rope.factor;
  for (size_t i = 0; i < rope.wave_factors.size(); ++i) frequencies[i] /= rope.wave_factors[i];
  return {frequencies.begin(), frequencies.end()};
}

std::string SameFrequencies(const RopeSpec& rope, int longest) {
  if (rope.type != "dynamic" && rope.type != "longrope") return "any";
  const auto original = static_cast<int64_t>(rope.original_positions);
  if (longest <= original) return StrCat("up to ", original);
  return rope.type == "dynamic" ? StrCat(longest) : StrCat("above ", original);
}

}  // namespace pinion
