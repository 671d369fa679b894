// Reads what asks for a beam search, and refuses what it cannot be combined with.

#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

// Far beyond what is of use: the power of a prompt's length stays a number.
constexpr double kMostLengthPenalty = 10;

// Fields that change the probabilities or the end of answers in ways that the search does not know.
// Those that only say how to draw tokens (temperature, top_p, seed, ...) change nothing.
ApiResult<void> CheckBeamConflicts(const Json& body, const GenerationRequest& request) {
  struct Conflict {
    const char* field;
    bool is_set;
  };
  const SamplingParams& params = request.params;
  const Conflict conflicts[] = {
      {"stream", request.stream},
      {"stop", !params.stop.empty()},
      {"min_tokens", params.min_tokens > 0},
      {"logit_bias", !params.logit_bias.empty()},
      {"allowed_token_ids", !params.allowed_token_ids.empty()},
      {"bad_words", !request.bad_words.empty()},
      {"presence_penalty", params.presence_penalty != 0},
      {"frequency_penalty", params.frequency_penalty != 0},
      {"repetition_penalty", Given(body, "repetition_penalty") && params.repetition_penalty != 1},
      {"prompt_logprobs", request.prompt_logprobs >= 0},
      {"echo", request.echo && params.prompt_logprobs >= 0},
      {"thinking_token_budget", request.thought_budget.has_value()},
      {request.grammar_field.c_str(), request.grammar.has_value()},
  };
  for (const auto& [field, is_set] : conflicts)
    if (is_set)
      return Bad(field, StrCat("'", field, "' and 'use_beam_search' cannot be combined; leave one ",
                               "of them out"));
  if (!request.prompt_only) return {};
  return Bad(request.max_tokens_name,
             StrCat("'", request.max_tokens_name, "' is 0, want at least 1 for a beam search"));
}

}  // namespace

ApiResult<void> ReadBeamSearch(const Json& body, GenerationRequest& request) {
  PINION_ASSIGN(const bool asked, Get<bool>(body, "use_beam_search", false));
  BeamRules rules;
  PINION_ASSIGN(rules.length_penalty, Get<double>(body, "length_penalty", 1));
  if (!asked) return {};
  if (!(rules.length_penalty >= -kMostLengthPenalty && rules.length_penalty <= kMostLengthPenalty))
    return Bad("length_penalty", StrCat("'length_penalty' is ", rules.length_penalty, ", want ",
                                        -kMostLengthPenalty, " to ", kMostLengthPenalty));
  PINION_TRY(CheckBeamConflicts(body, request));
  request.beam = std::move(rules);
  return {};
}

}  // namespace pinion
