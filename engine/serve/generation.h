#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/engine.h"
#include "engine/serve/http.h"
#include "engine/serve/metrics.h"
#include "engine/serve/response.h"
#include "engine/serve/schema.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// One completion or chat request in flight: turns the tokens of its choices into text and the text
// into the answer, whole or as a stream. Choice i belongs to prompt i / n.
class Generation {
 public:
  // `prompt_ids`: one list per prompt. `arrived_ns`: the start of all latencies. The tokenizer and
  // the metrics outlive the object.
  Generation(const Tokenizer& tokenizer, ServeMetrics& metrics, GenerationRequest request,
             std::vector<std::vector<int32_t>> prompt_ids, ResponseHead head,
             std::shared_ptr<HttpReply> reply, int64_t arrived_ns);

  size_t choices() const { return choices_.size(); }
  size_t prompts() const { return prompt_ids_.size(); }
  // The parameters sent to the engine for a choice: the request's, with a seed of its own.
  SamplingParams ParamsOf(size_t choice) const;
  const std::vector<int32_t>& PromptOf(size_t choice) const;

  enum class Next {
    kMore,      // the choice continues
    kFinished,  // the choice is complete and the engine knows
    kAbort,     // the choice is complete (a stop string) and the caller must abort it
  };
  Next OnEvent(size_t choice, const TokenEvent& event);

  // Answers with an error instead; in a stream already under way, as its last event.
  void Fail(const ApiError& error);

  // Counts choices for the metrics that ended because the client left or the server gave up.
  void CountUnfinished(const char* reason);

 private:
  struct Choice {
    explicit Choice(OutputText text_of_tokens) : output(std::move(text_of_tokens)) {}
    OutputText output;
    std::string text;                  // not yet sent
    size_t echo_bytes = 0;             // leading bytes of `text` that echo the prompt
    std::vector<SampledToken> tokens;  // not yet sent; kept only for logprobs
    size_t text_offset = 0;            // of tokens.front() in the whole text, characters
    size_t output_tokens = 0, cached_tokens = 0;
    int64_t first_token_ns = 0, last_token_ns = 0;
    std::string finish_reason;
    Json stop_reason;
    bool done() const { return !finish_reason.empty(); }
  };

  void TakeToken(Choice& choice, const TokenEvent& event);
  void Time(Choice& choice, const TokenEvent& event);
  void Finish(Choice& choice, const TokenEvent& event);
  ChoicePart TakePart(size_t index);
  void BeginStream();
  void EndAnswer();
  Usage CountUsage() const;

  const Tokenizer& tokenizer_;
  ServeMetrics& metrics_;
  GenerationRequest request_;
  std::vector<std::vector<int32_t>> prompt_ids_;
  ResponseHead head_;
  std::shared_ptr<HttpReply> reply_;
  std::vector<Choice> choices_;
  size_t unfinished_;
  bool streaming_ = false;
  int64_t arrived_ns_;
};

}  // namespace pinion
