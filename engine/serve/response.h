#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/sample/sampled_token.h"
#include "engine/serve/output_format.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The fields common to all answers to one request.
struct ResponseHead {
  std::string id;       // "cmpl-...", "chatcmpl-...", "msg_...", "resp_..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool chat = false;
};

struct Usage {
  size_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  size_t reasoning_tokens = 0;  // of the completion's; counted for Responses alone
};

// One choice, or the new part of it in a stream.
struct ChoicePart {
  size_t index = 0;
  std::string text;
  Json logprobs;              // null: not requested
  std::string finish_reason;  // empty: the choice continues
  Json stop_reason;           // the stop string or stop token id that matched, as in vLLM
  Json prompt_logprobs = {};  // null: not requested
  // Of the prompt, in a choice's first part, and of this part's tokens; null: not requested.
  Json prompt_token_ids = {}, token_ids = {};
  std::string reasoning = {};
  std::vector<ToolCall> calls = {};   // the first may go on with a call, and then has no name
  std::vector<float> pooled = {};     // of a text or a pair: Pooler
  size_t first_call = 0;              // of `calls`, counted from the choice's first
  Usage usage = {};                   // of the choice, so far
  double prompt_s = 0, decode_s = 0;  // from its first step to its first token, and to this part
};

// Nine letters and digits, as Mistral's templates demand: the same for the same call, and for two
// calls of an answer never.
std::string CallId(const std::string& answer, size_t choice, size_t call);

// {"reasoning_content", "reasoning", "tool_calls"}, those that the part has, as members of a
// message or, with an index for each call, of a stream's delta. Ids of calls are made from the
// answer's. A delta that goes on with a call has its index and more of its arguments alone.
Json::Object ParsedFields(const ResponseHead& head, const ChoicePart& part, bool delta);

Json ToJson(const Usage& usage);

// One server-sent event; event_writer.h writes those of tokens.
std::string SseEvent(const Json& data);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";

// The whole answer of a request that does not stream.
Json WholeResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                   const Usage& usage);
// The memory that a token with its log-probability, or an alternative beside it, takes until the
// answer is sent: here, as JSON values (some 600 bytes), as the library's, and as text.
inline constexpr size_t kLogprobBytes = 1200;
// The same for a token's id alone: twice as JSON value, and as text.
inline constexpr size_t kTokenIdBytes = 100;

// Log-probabilities in the format of completions. Of each token's alternatives it shows the `count`
// best.
class CompletionLogprobs {
 public:
  // as_ids: tokens are named "token_id:7", not by their texts, of which several may be the same.
  CompletionLogprobs(const Tokenizer& tokenizer, int count, bool as_ids = false)
      : tokenizer_(tokenizer), count_(static_cast<size_t>(count)), as_ids_(as_ids) {}
  // `text_offset`: of the token's text in the answer, in characters; is advanced past it.
  void Add(const SampledToken& token, size_t& text_offset);
  // The first token of a prompt, which has no log-probability.
  void AddFirst(int32_t id, size_t& text_offset);
  Json Take();

 private:
  std::string AddText(int32_t id, size_t& text_offset);

  const Tokenizer& tokenizer_;
  size_t count_;
  bool as_ids_;
  Json::Array texts_, chosen_, tops_, offsets_;
};
// with_ids: each token has its id as well, as llama-server has it.
Json ChatLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens,
                  bool as_ids = false, bool with_ids = false);
// vLLM's `prompt_logprobs`: null for the first token, then for each an object by token id of itself
// and the `count` best. `rated`: the tokens from the second on.
Json PromptLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& rated, int count);

}  // namespace pinion
