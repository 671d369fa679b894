#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pinion {

struct SampledToken {
  // Ids below 0 say why there is no token: its grammar has no mask for it, or a logit is NaN or
  // +infinity, so that there is no distribution.
  static constexpr int32_t kNoMask = -1, kNotFinite = -2;

  int32_t id = 0;
  // From the softmax of the raw logits (before penalties and temperature), as in vLLM; 0 if
  // params.logprobs asks for none, -infinity if every logit is.
  double logprob = 0;
  // The params.logprobs best, best first.
  std::vector<std::pair<int32_t, double>> top = {};
  uint32_t rank = 0;  // of prompt tokens: 1 and the number of better ones; 0: not asked for
};

}  // namespace pinion
