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
  // Of the raw logits' softmax (before penalties and temperature), as vLLM; 0 where params.logprobs
  // asks for none, -infinity where the logits give no number.
  double logprob = 0;
  std::vector<std::pair<int32_t, double>> top;  // the params.logprobs best, best first
};

// Chooses one request's tokens, one after the other. In vLLM's order (the docstring of
// vllm/v1/sample/sampler.py): logprobs of the raw logits, min_tokens' mask, logit_bias, penalties
// (repetition, frequency, presence); then greedy, or temperature, min-p, top-k, top-p and the draw.
// Temperatures under 1e-5 are greedy, as there. Of equal logits the lowest id is the better one.
// Its random stream depends on the seed and the
// number of tokens drawn alone: never on the batch, the step or the thread.
// Thread rule: one call at a time per sampler; different samplers in parallel.
class Sampler {
 public:
  // `seed` is what params.seed holds, or the engine's choice where it is unset. `eos_ids` are the
  // model's; they are masked (with the stop ids) until min_tokens.
  Sampler(const SamplingParams& params, uint64_t seed, std::vector<int32_t> eos_ids,
          std::span<const int32_t> prompt);

  // logits   float32 [vocabulary], may be overwritten; infinities and NaN are allowed (NaN is never
  //          drawn unless there is nothing else), the id is always inside the vocabulary
  // Every call is one token of the output; what it returns counts for the penalties of the next.
  SampledToken Sample(const kernels::Table& table, std::span<float> logits);

  // After a preemption by recomputation nothing changes: the tokens drawn stay drawn.
  size_t drawn() const { return drawn_; }

 private:
  void Adjust(std::span<float> logits) const;
  void Penalise(std::span<float> logits) const;
  size_t Draw(const kernels::Table& table, std::span<float> logits) const;
  bool penalises() const;

  SamplingParams params_;
  uint64_t seed_;
  std::vector<int32_t> eos_ids_;
  std::unordered_map<int32_t, int> output_counts_;  // kept only where a penalty needs them
  std::vector<int32_t> prompt_ids_;  // unique; kept only where a repetition penalty needs them
  size_t drawn_ = 0;
};

}  // namespace pinion
