#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/sample/sampler.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// What every answer to one request has in common.
struct ResponseHead {
  std::string id;       // "cmpl-..." or "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool chat = false;
};

// One choice, or what is new of it in a stream.
struct ChoicePart {
  size_t index = 0;
  std::string text;
  Json logprobs;              // null: none were asked for
  std::string finish_reason;  // empty: it goes on
  Json stop_reason;           // the stop string or stop token id that matched, as vLLM tells it
};

struct Usage {
  size_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// One server-sent event.
std::string SseEvent(const Json& data);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";

// The whole answer of a request that does not stream.
Json WholeResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                   const Usage& usage);
// Chunks of a stream: the role of a chat choice, then parts, then (if asked for) the usage alone.
Json RoleChunk(const ResponseHead& head, size_t index);
Json PartChunk(const ResponseHead& head, const ChoicePart& part);
Json UsageChunk(const ResponseHead& head, const Usage& usage);

// Log-probabilities as each endpoint writes them. `text_offset` is where the first token's text
// begins in the answer, in characters; it moves past the tokens.
Json CompletionLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens,
                        size_t& text_offset);
Json ChatLogprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens);

}  // namespace pinion
