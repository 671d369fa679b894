#include "harness/cli/sampling_flags.h"

namespace pinion::harness {

void AddSamplingFlags(CLI::App& command, SamplingParams& params) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->capture_default_str()->group("Sampling");
  };
  const auto flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group("Sampling");
  };
  add("--max-tokens", params.max_tokens, "most tokens to generate");
  add("--min-tokens", params.min_tokens, "fewest tokens to generate");
  add("--temperature", params.temperature,
      "randomness of the choice; 0: always the likeliest token");
  add("--top-p", params.top_p,
      "choose among the likeliest tokens that add up to this probability, (0, 1]");
  add("--top-k", params.top_k, "choose among this many of the likeliest tokens, 0: all");
  add("--min-p", params.min_p,
      "choose among tokens with at least this fraction of the likeliest one's probability, [0, 1]");
  add("--repetition-penalty", params.repetition_penalty,
      "above 1: tokens of prompt and output become less likely, > 0");
  add("--presence-penalty", params.presence_penalty,
      "above 0: tokens of the output become less likely, [-2, 2]");
  add("--frequency-penalty", params.frequency_penalty,
      "the same, once for each occurrence, [-2, 2]");
  add("--logprobs", params.logprobs,
      "report log-probabilities of this many likeliest tokens; -1: none");
  command.add_option("--stop", params.stop, "end at this text; may be repeated")->group("Sampling");
  command.add_option("--stop-token-ids", params.stop_token_ids, "end at these tokens, such as 2,5")
      ->delimiter(',')
      ->group("Sampling");
  flag("--ignore-eos", params.ignore_eos, "continue after the end-of-text token");
  flag("--include-stop-str-in-output", params.include_stop_str_in_output,
       "keep the text of --stop in the output");
}

}  // namespace pinion::harness
