#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "engine/run/prompts.h"

namespace pinion {

struct ScoreOptions {
  int top_logprobs = 0;  // the K best ids of every position
  std::string
      logits_path;  // safetensors file for prompt<i>.logits, float32 [tokens, vocabulary]; "": none
  std::string compare_path;  // such a file, of a reference to compare with; "": none
};

struct Scores {
  std::vector<Json> lines;    // one a prompt
  std::optional<Json> whole;  // with a reference: Comparison::Summary of all prompts
};

// Log-probabilities of every prompt's own tokens. Every position is computed: nothing comes from
// the prefix cache. One JSON object a prompt, in input order:
//   {"input_ids","token_logprobs","top_logprobs","perplexity"} or {"error"}; with a
// reference also "compare", as Comparison::Line has it.
// token_logprobs has a number a token, null for the first; top_logprobs a list of [id, logprob] a
// token, null for the first; perplexity = exp(-mean(token_logprobs)), null for a single token.
Result<Scores> Score(Engine& engine, const std::vector<Prompt>& prompts,
                     const ScoreOptions& options);

}  // namespace pinion
