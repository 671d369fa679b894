#include "harness/cli/sampling_flags.h"

namespace pinion::harness {

void AddSamplingFlags(CLI::App& command, SamplingParams& params) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->capture_default_str()->group("Sampling");
  };
  const auto flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group("Sampling");
  };
  add("--max-tokens", params.max_tokens, "generate at most so many tokens");
  add("--min-tokens", params.min_tokens, "do not end before so many tokens");
  add("--temperature", params.temperature, "how even the choice is; 0: always the likeliest token");
  add("--top-p", params.top_p,
      "choose among the likeliest tokens that add up to this probability, (0, 1]");
  add("--top-k", params.top_k, "choose among so many of the likeliest tokens, 0: all");
  add("--min-p", params.min_p,
      "choose among tokens at least so likely as a part of the likeliest, [0, 1]");
  add("--repetition-penalty", params.repetition_penalty,
      "above 1: tokens of prompt and output become less likely, > 0");
  add("--presence-penalty", params.presence_penalty,
      "above 0: tokens of the output become less likely, [-2, 2]");
  add("--frequency-penalty", params.frequency_penalty,
      "the same, each time that a token comes, [-2, 2]");
  add("--logprobs", params.logprobs,
      "also tell log-probabilities: of so many of the likeliest tokens; -1: none");
  command.add_option("--stop", params.stop, "end at this text; may be repeated")->group("Sampling");
  command.add_option("--stop-token-ids", params.stop_token_ids, "end at these tokens, as 2,5")
      ->delimiter(',')
      ->group("Sampling");
  flag("--ignore-eos", params.ignore_eos, "go on after the end-of-text token");
  flag("--include-stop-str-in-output", params.include_stop_str_in_output,
       "keep the text of --stop in the output");
}

}  // namespace pinion::harness
