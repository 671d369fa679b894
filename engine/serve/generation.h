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
  // `prompt_ids`: one list per prompt. `arrived_ns`: where latencies count from. The tokenizer and
  // the metrics outlive the object.
  Generation(const Tokenizer& tokenizer, ServeMetrics& metrics, GenerationRequest request,
             std::vector<std::vector<int32_t>> prompt_ids, ResponseHead head,
             std::shared_ptr<HttpReply> reply, int64_t arrived_ns);

  size_t choices() const { return choices_.size(); }
  // What the engine is told for a choice: the request's parameters, with a seed of its own.
  SamplingParams ParamsOf(size_t choice) const;
  const std::vector<int32_t>& PromptOf(size_t choice) const;

  enum class Next {
    kMore,      // the choice goes on
    kFinished,  // it is complete, the engine knows
    kAbort,     // it is complete (a stop string), the engine must be told
  };
  Next OnEvent(size_t choice, const TokenEvent& event);

  // Answers with an error instead; in a stream that has begun, as its last event.
  void Fail(const ApiError& error);

  // For the metrics: the client has gone, or the server gives up.
  void CountUnfinished(const char* reason);

 private:
  struct Choice {
    explicit Choice(OutputText text_of_tokens) : output(std::move(text_of_tokens)) {}
    OutputText output;
    std::string text;                  // not yet sent
    size_t echo_bytes = 0;             // of text, the prompt's
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
