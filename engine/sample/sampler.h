#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/sample/params.h"
#include "engine/sample/sampled_token.h"
#include "engine/sample/thought.h"
#include "kernels/kernels.h"

namespace pinion {

// A token that was not chosen but given, as those of a prompt are: its log-probability and rank
// under `logits`, and the `count` best tokens; SampledToken::kNotFinite as in Sampler::Sample.
SampledToken RateToken(const kernels::Table& table, std::span<const float> logits, int32_t id,
                       int count);

// Chooses one request's tokens, one after the other. In vLLM's order (the docstring of
// vllm/v1/sample/sampler.py): logprobs of the raw logits, allowed tokens, bad words, min_tokens'
// mask, logit_bias, penalties (repetition, frequency, presence); then greedy, or temperature,
// min-p, top-k, top-p and the draw. Temperatures under 1e-5 are greedy, as there. Of equal logits
// the lowest id is the better one. The random stream depends only on the seed and the number of
// tokens drawn, never on the batch, the step or the thread. Thread rule: one call at a time per
// sampler; different samplers in parallel.
class Sampler {
 public:
  // `seed` is params.seed, or the engine's choice if that is unset. `eos_ids` are the model's; they
  // are masked (with the stop ids) until min_tokens.
  Sampler(const SamplingParams& params, uint64_t seed, std::vector<int32_t> eos_ids,
          std::span<const int32_t> prompt);

  // logits   float32 [vocabulary], may be overwritten. If one is NaN or +infinity, whether or not
  //          it may be chosen, the id is SampledToken::kNotFinite, and nothing counts as drawn;
  //          otherwise the id is inside the vocabulary, even if all of it is forbidden.
  // mask     one bit a token, the lowest of a word first, 1 for those that a grammar allows; empty:
  //          all. Its words may be fewer than the vocabulary needs: tokens past them are forbidden.
  //          It comes last of what forbids tokens and outweighs logit_bias; where min_tokens, bad
  //          words or allowed_token_ids leave none of its tokens, it alone holds. If the answer may
  //          reason (params.thought), it waits for the end of that, and the answer may begin with
  //          the mark of reasoning beside what the mask allows.
  // Once the budget of params.thought is spent, the tokens that end the reasoning are chosen
  // whatever the logits are; until then they are as if there were no budget. Every call is one
  // token of the output, which counts towards the penalties of later ones.
  SampledToken Sample(const kernels::Table& table, std::span<float> logits,
                      std::span<const uint32_t> mask = {});

  // Counts a token of the output that a grammar forced, so that it was not drawn, as if it had
  // been.
  void Take(int32_t id);

  // The number of tokens drawn or taken; a preemption does not reset it.
  size_t drawn() const { return drawn_; }

 private:
  int32_t Choose(const kernels::Table& table, std::span<float> logits,
                 std::span<const uint32_t> mask) const;
  void Adjust(std::span<float> logits) const;
  void AllowOnlyAllowed(std::span<float> logits) const;
  void MaskBadWords(std::span<float> logits) const;
  void Penalise(std::span<float> logits) const;
  void Count(int32_t id);
  int32_t Draw(const kernels::Table& table, std::span<float> logits) const;
  bool forbids() const;  // some token, for the next call
  bool penalises() const;

  SamplingParams params_;
  uint64_t seed_;
  std::vector<int32_t> eos_ids_;
  // Tokens that penalties see: of the output, or of the prompt and the output if they have a
  // window; kept only if a penalty needs them.
  std::unordered_map<int32_t, int> counts_;
  std::deque<int32_t> window_;
  std::vector<int32_t> prompt_ids_;        // unique; kept only if a repetition penalty needs them
  std::vector<int32_t> output_;            // kept only if there are bad words
  std::optional<ThoughtTracker> thought_;  // if there is a budget
  size_t drawn_ = 0;
};

}  // namespace pinion
