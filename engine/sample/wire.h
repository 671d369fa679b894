#pragma once

#include "engine/base/wire.h"
#include "engine/sample/params.h"
#include "engine/sample/sampled_token.h"

namespace pinion {

// The fields of a request's sampling, and of its result, for WireWriter and WireReader.
template <typename Archive>
void Fields(Archive& archive, ThoughtRules& r) {
  archive(r.budget, r.begin, r.end, r.forced, r.blank, r.anywhere, r.in_prompt);
}
template <typename Archive>
void Fields(Archive& archive, SamplingParams& p) {
  archive(p.temperature, p.top_p, p.top_k, p.min_p, p.repetition_penalty, p.presence_penalty,
          p.frequency_penalty, p.penalty_window, p.seed, p.max_tokens, p.min_tokens, p.ignore_eos,
          p.eos_ids, p.stop_token_ids, p.stop, p.include_stop_str_in_output, p.logprobs,
          p.prompt_logprobs, p.logit_bias, p.allowed_token_ids, p.bad_words_ids, p.thought);
}
template <typename Archive>
void Fields(Archive& archive, SampledToken& token) {
  archive(token.id, token.logprob, token.top, token.rank);
}

}  // namespace pinion
