#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/run/engine.h"
#include "engine/serve/admission.h"
#include "engine/serve/answer_parser.h"
#include "engine/serve/answer_writer.h"
#include "engine/serve/http.h"
#include "engine/serve/link.h"
#include "engine/serve/metrics.h"
#include "engine/serve/prepare.h"
#include "engine/serve/response.h"
#include "engine/serve/schema.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// One request for text in flight: turns the tokens of its choices into text and the text
// into the answer, whole or as a stream. Choice i belongs to prompt i / n.
class Generation {
 public:
  // A request as it came.
  struct Origin {
    std::string client;
    int64_t arrived_ns = 0;  // the start of all latencies
    double limit_s = 0;      // for the whole answer, from there
    std::shared_ptr<HttpReply> reply;
  };

  // The tokenizer and the metrics outlive the object.
  Generation(const Tokenizer& tokenizer, ServeMetrics& metrics, Prepared prepared,
             ResponseHead head, Origin origin, Admission::Ticket ticket);

  size_t choices() const { return choices_.size(); }
  size_t unfinished() const { return unfinished_; }
  bool ended() const { return unfinished_ == 0; }
  const std::string& client() const { return origin_.client; }
  double limit_s() const { return origin_.limit_s; }
  uint64_t first_id() const { return first_id_; }  // 0: the engine does not know the request
  // How its choices are searched for; null: they are sampled.
  const BeamRules* beam_rules() const { return request_.beam ? &*request_.beam : nullptr; }

  // The messages that give the engine this request, one per prompt, with ids from `first_id` on for
  // all choices in their order. Once only: they take the prompts.
  std::vector<SubmitMessage> TakeSubmits(uint64_t first_id);
  // Which engine has the choices of a prompt, for the metrics.
  void SetEngine(size_t prompt, size_t engine);
  // Sends a stream's header, before there is a token.
  void Begin();

  enum class Next {
    kMore,   // the choice continues, or has ended and the engine knows
    kAbort,  // the choice has ended and the caller must abort it
    kFail,   // it cannot go on: the caller fails and cancels the request
  };
  Next OnEvent(size_t choice, const TokenEvent& event);
  // The error to fail with after kFail.
  ApiError Failure() const;

  // Once ended: whether Answer() takes long enough to be another thread's work. A stream has been
  // answered already.
  bool needs_answer() const { return ended() && !request_.stream; }
  bool answer_is_large() const;
  std::string Answer();  // any thread; meanwhile only Fail and CountUnfinished may be called
  void Send(std::string answer);

  // Answers with an error instead; in a stream already under way, as its last event.
  void Fail(const ApiError& error, const std::string& retry_after = "");

  // Counts choices for the metrics that ended because the client left or the server gave up.
  void CountUnfinished(const char* reason);

 private:
  struct Choice {
    explicit Choice(OutputText text_of_tokens) : output(std::move(text_of_tokens)) {}
    OutputText output;
    size_t engine = 0;                     // that computes it
    std::unique_ptr<AnswerParser> parser;  // if the answer may have reasoning or calls
    size_t calls = 0;                      // that it has found
    std::string text;                      // not yet sent
    size_t echo_bytes = 0;                 // leading bytes of `text` that echo the prompt
    std::vector<SampledToken> tokens;      // not yet sent; kept only for logprobs
    std::vector<int32_t> ids;              // not yet sent; kept only if they are asked for
    std::vector<float> pooled;             // of a text that was embedded or scored
    size_t text_offset = 0;                // of tokens.front() in the whole text, characters
    // Tells which tokens are reasoning, if that is asked for: the other parser sees an answer that
    // does not stream as one text.
    std::unique_ptr<AnswerParser> counter;
    size_t uncounted_tokens = 0, reasoning_tokens = 0;
    size_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
    int64_t scheduled_ns = 0, first_token_ns = 0, last_token_ns = 0;
    bool waits = true;         // its prompt counts as queued
    bool shows_prompt = true;  // its first part is yet to come
    bool out_of_time = false;  // it has completed a line behind its limit
    std::string finish_reason;
    Json stop_reason;
    bool done() const { return !finish_reason.empty(); }
  };

  // The prompt's tokens as the answer shows them: kept once for all of its choices.
  struct RatedPrompt {
    int32_t first = 0;
    std::vector<SampledToken> others;
  };

  void TakeRated(size_t index, const TokenEvent& event);
  Json LogprobsOf(size_t index);
  bool TakeToken(size_t index, const TokenEvent& event);
  bool IsBehindLimit(const Choice& choice, std::string_view text) const;
  static void CountReasoning(Choice& choice, std::string_view text);
  void EndPrompt(size_t index);
  void Time(size_t index, const TokenEvent& event);
  void Finish(Choice& choice, const TokenEvent& event);
  ChoicePart TakePart(size_t index);
  static void Parse(Choice& choice, ChoicePart& part);
  Json TakePromptIds(size_t index);
  void EndStream();
  Usage CountUsage() const;
  Usage UsageOf(const Choice& choice) const;
  size_t PromptOf(size_t choice) const { return choice / static_cast<size_t>(request_.n); }
  // A stream of Responses says everything once more at its end.
  bool keeps_logprobs() const { return !request_.stream || request_.api == Api::kResponses; }

  const Tokenizer& tokenizer_;
  ServeMetrics& metrics_;
  GenerationRequest request_;
  std::vector<std::vector<int32_t>> prompts_, types_;  // until TakeSubmits
  std::vector<size_t> prompt_tokens_;
  std::vector<std::vector<int32_t>> shown_prompts_;  // if their ids are asked for
  std::vector<RatedPrompt> rated_;  // one per prompt, if its log-probabilities are asked for
  MemoryShare memory_;
  Origin origin_;
  Admission::Ticket ticket_;
  std::unique_ptr<AnswerWriter> writer_;
  HttpFields header_;  // of the answer
  std::vector<Choice> choices_;
  size_t unfinished_ = 0, kept_tokens_ = 0, longest_output_ = 0;
  bool streaming_ = false;
  uint64_t first_id_ = 0;
  std::string engine_error_;  // why the engine gave a choice up
};

}  // namespace pinion
