#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pinion {

struct SampledToken {
  // Ids instead of a token's, below 0: its grammar has no mask for it; there is no distribution,
  // as a logit is NaN or +infinity.
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
