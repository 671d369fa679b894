#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/sample/sampler.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The fields common to all answers to one request.
struct ResponseHead {
  std::string id;       // "cmpl-..." or "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool chat = false;
};

// One choice, or the new part of it in a stream.
struct ChoicePart {
  size_t index = 0;
  std::string text;
  Json logprobs;              // null: not requested
  std::string finish_reason;  // empty: the choice continues
  Json stop_reason;           // the stop string or stop token id that matched, as in vLLM
};

struct Usage {
  size_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

Json ToJson(const Usage& usage);

// One server-sent event; event_writer.h writes those of tokens.
std::string SseEvent(const Json& data);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";

// The whole answer of a request that does not stream.
Json WholeResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                   const Usage& usage);
// Log-probabilities in the format of each endpoint. `text_offset` is the offset of the first
// token's text in the answer, in characters; it is advanced past the tokens.
Json CompletionLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens,
                        size_t& text_offset);
Json ChatLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens);

}  // namespace pinion
