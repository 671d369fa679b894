#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "engine/sample/sampler.h"

namespace pinion {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline const kernels::Table& Scalar() { return kernels::TableFor(kernels::Isa::kScalar); }

inline SamplingParams AtTemperature(double temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

inline SampledToken SampleOnce(const SamplingParams& params, std::vector<float> logits,
                               uint64_t seed = 1) {
  return Sampler(params, seed, {}, {}).Sample(Scalar(), logits);
}

// How often each id comes out of `draws` draws with the same logits.
inline std::map<int32_t, int> Draw(const SamplingParams& params, const std::vector<float>& logits,
                                   int draws, uint64_t seed = 20261120) {
  Sampler sampler(params, seed, {}, {});
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    std::vector<float> scratch = logits;
    ++counts[sampler.Sample(Scalar(), scratch).id];
  }
  return counts;
}
}  // namespace pinion
