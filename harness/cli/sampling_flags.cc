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
  add("--min-tokens", params.min_tokens, "no end of text before this many tokens");
  add("--temperature", params.temperature, "0 is greedy");
  add("--top-p", params.top_p, "nucleus: (0, 1]");
  add("--top-k", params.top_k, "0: all");
  add("--min-p", params.min_p, "[0, 1]");
  add("--repetition-penalty", params.repetition_penalty, "> 0; over prompt and output");
  add("--presence-penalty", params.presence_penalty, "[-2, 2]");
  add("--frequency-penalty", params.frequency_penalty, "[-2, 2]");
  add("--logprobs", params.logprobs, "k best log-probabilities a token; -1: none");
  command.add_option("--stop", params.stop, "end at this text (repeatable)")->group("Sampling");
  command.add_option("--stop-token-ids", params.stop_token_ids, "end at these tokens")
      ->delimiter(',')
      ->group("Sampling");
  flag("--ignore-eos", params.ignore_eos, "go on after the end-of-text token");
  flag("--include-stop-str-in-output", params.include_stop_str_in_output, "keep the stop text");
}

}  // namespace pinion::harness
