#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/sample/thought.h"

namespace pinion {

// How one request's tokens are chosen. Names, ranges and meanings are those of the OpenAI API and
// vLLM's SamplingParams.
struct SamplingParams {
  double temperature = 0;         // 0: greedy (the API layer sets 1 if a client leaves it out)
  double top_p = 1;               // (0, 1]
  int top_k = 0;                  // 0 or -1: all
  double min_p = 0;               // [0, 1]
  double repetition_penalty = 1;  // > 0; over prompt and output
  double presence_penalty = 0;    // [-2, 2]; over output
  double frequency_penalty = 0;   // [-2, 2]; over output
  // Set: all three penalties are over the last so many tokens of prompt and output together, as
  // llama-server's are. The API's name is its `repeat_last_n`, which the front end reads.
  std::optional<size_t> penalty_window;
  std::optional<uint64_t> seed;  // unset: drawn from the engine's seed and the request number
  int max_tokens = 16;           // >= 1
  int min_tokens = 0;            // EOS and stop ids are masked, stop strings ignored, before this
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  // That end the answer in place of the model's; empty: those. A grammar ends with the model's.
  std::vector<int32_t> eos_ids = {};
  std::vector<std::string> stop;  // none empty; checked by OutputText
  bool include_stop_str_in_output = false;
  int logprobs = -1;         // -1: none; k >= 0: for the chosen token and the k best ones
  int prompt_logprobs = -1;  // the same for the prompt's tokens but the first
  std::vector<std::pair<int32_t, double>> logit_bias;  // [-100, 100]
  std::vector<int32_t> allowed_token_ids;              // empty: all; else no others are chosen
  // Never chosen: the last token of each, when the others have just been. None empty. The API has
  // texts; the front end, which has the tokenizer, makes these of them.
  std::vector<std::vector<int32_t>> bad_words_ids;
  // How long the answer may reason. Its marks come from the front end, too.
  ThoughtRules thought = {};
};

// One sentence for the first value out of range; ErrorCode::kUsage.
Status Validate(const SamplingParams& params);

// An id in `params` that is outside a vocabulary of this size; the sampler itself does not check
// ids. `field` is its API name.
struct UnknownId {
  const char* field;
  int32_t id;
};
std::optional<UnknownId> FindUnknownId(const SamplingParams& params, size_t vocabulary);
// "'logit_bias' names token 200000, want ids below 151936".
std::string Describe(const UnknownId& unknown, size_t vocabulary);

// Overwrites the fields that `object` names by their API names ("temperature", "top_p", "stop" as
// string or list, ...); keys it does not know are left to the caller.
Status ReadSamplingParams(const Json& object, SamplingParams& params);
Json ToJson(const SamplingParams& params);

}  // namespace pinion
