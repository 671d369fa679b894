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
  int top_logprobs = 0;  // number of best ids to report for every position
  std::string
      logits_path;  // safetensors file for prompt<i>.logits, float32 [tokens, vocabulary]; "": none
  std::string compare_path;  // such a file, of a reference to compare with; "": none
};

struct Scores {
  std::vector<Json> lines;    // one per prompt
  std::optional<Json> whole;  // with a reference: Comparison::Summary of all prompts
};

// Log-probabilities of every prompt's own tokens. Every position is computed: nothing comes from
// the prefix cache. One JSON object per prompt, in input order:
//   {"input_ids","token_logprobs","top_logprobs","perplexity"} or {"error"}, of a prompt that the
// engine refuses or whose logits are not finite; with a reference also "compare", the object that
// Comparison::Line returns.
// token_logprobs has one number per token, top_logprobs one list of [id, logprob] per token; both
// start with null. perplexity = exp(-mean(token_logprobs)), null for a single token.
Result<Scores> Score(Engine& engine, const std::vector<Prompt>& prompts,
                     const ScoreOptions& options);

}  // namespace pinion
