#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "engine/run/prompts.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The work of `pinion embed` and `pinion rank` on the lines of a file. Errors of a line name it and
// its field; the others go on.

struct EmbedOptions {
  std::string prompt_name = {};  // of EmbedderSpec::prompts; empty: the model's default
  size_t dimensions = 0;         // that are kept of each embedding; 0: all
};

// {"text"} or {"input_ids"}; "prompt_name" (of a text) and "dimensions" of its own -> {"embedding":
// [...]} or {"error"}. Other keys are errors here and below: nothing would heed them.
// kUsage if the model does not embed, or has not so many dimensions.
Result<std::vector<Json>> EmbedLines(Engine& engine, const Tokenizer* tokenizer,
                                     const std::vector<JsonLine>& lines,
                                     const EmbedOptions& options);

// {"query", "documents": [texts]}, of generative rerankers also "instruction" -> {"scores": [...]},
// one a document, or {"error"}. A score is what the model's config.json makes of its logit, mostly
// a probability, or the logit itself (`logits`). kUsage if the model does not score pairs.
Result<std::vector<Json>> RankLines(Engine& engine, const Tokenizer& tokenizer,
                                    const std::vector<JsonLine>& lines, bool logits);

}  // namespace pinion
