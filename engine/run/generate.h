#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "engine/run/prompts.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The outcome of one prompt.
struct PromptResult {
  // Set: the request was refused, or the engine gave it up; nothing below is meaningful.
  Status error;
  std::vector<int32_t> output_ids;
  std::string text;  // empty without a tokenizer
  FinishReason finish = FinishReason::kNone;
  size_t cached_tokens = 0;
  std::vector<SampledToken> tokens;  // with log-probabilities, if params.logprobs >= 0
};

// Callbacks while the batch runs; each may be left empty.
struct GenerateHooks {
  // Text of prompt `index` as it becomes final.
  std::function<void(size_t index, std::string_view text)> on_text;
  // The whole result of prompt `index`, once: refused ones first, then in the order they finish.
  std::function<void(size_t index, const PromptResult&)> on_done;
  // After every step: the number of tokens generated so far for all prompts together.
  std::function<void(uint64_t tokens)> on_step;
};

// Runs all prompts to their end, batched by the scheduler; results are in input order. Keys of a
// prompt's line override `params`. `tokenizer` may be null: no text, and stop strings are refused.
std::vector<PromptResult> Generate(Engine& engine, const Tokenizer* tokenizer,
                                   const std::vector<Prompt>& prompts, const SamplingParams& params,
                                   const GenerateHooks& hooks = {});

// {"prompt_ids","output_ids","text","finish_reason","cached_tokens"[,"logprobs"]} or {"error"}.
Json ToJson(const Prompt& prompt, const PromptResult& result);

}  // namespace pinion
