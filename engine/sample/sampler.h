#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/sample/params.h"
#include "kernels/kernels.h"

namespace pinion {

struct SampledToken {
  int32_t id = 0;
  double logprob = 0;  // of the raw logits' softmax (before penalties and temperature), as vLLM
  std::vector<std::pair<int32_t, double>> top;  // the params.logprobs best, best first
};

// Chooses one request's tokens, one after the other. Its random stream depends on the seed and the
// number of tokens drawn alone: never on the batch, the step or the thread.
// Thread rule: one call at a time per sampler; different samplers in parallel.
class Sampler {
 public:
  // `seed` is what params.seed holds, or the engine's choice where it is unset. `eos_ids` are the
  // model's; they are masked (with the stop ids) until min_tokens.
  Sampler(const SamplingParams& params, uint64_t seed, std::vector<int32_t> eos_ids,
          std::span<const int32_t> prompt);

  // logits   float32 [vocabulary], may be overwritten
  // Every call is one token of the output; what it returns counts for the penalties of the next.
  SampledToken Sample(const kernels::Table& table, std::span<float> logits);

  // After a preemption by recomputation nothing changes: the tokens drawn stay drawn.
  size_t drawn() const { return drawn_; }

 private:
  SamplingParams params_;
  uint64_t seed_;
  std::vector<int32_t> eos_ids_;
  std::unordered_map<int32_t, int> output_counts_;
  std::vector<int32_t> prompt_ids_;  // unique; kept only where a repetition penalty needs them
  size_t drawn_ = 0;
};

}  // namespace pinion
