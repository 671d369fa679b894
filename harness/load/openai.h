#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

enum class Endpoint { kCompletions, kChat };
const char* Name(Endpoint endpoint);  // "completions", "chat"
const char* Path(Endpoint endpoint);  // "/v1/completions", "/v1/chat/completions"
Result<Endpoint> ParseEndpoint(const std::string& name);

// The parameters that all requests of a load share.
struct RequestStyle {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;
  bool ignore_eos = true;  // answers of exactly the requested length, if the server obeys
  double temperature = 0;
  Json extra_body;  // further fields, copied unchanged; null: none
  bool operator==(const RequestStyle&) const = default;
};

// The conversation so far: questions and answers in turn, the last question unanswered.
struct Exchanges {
  std::string context;
  std::vector<std::string> said;
};

// The body of one streaming request. Completions get the same text, joined by line ends.
std::string RequestBody(const RequestStyle& style, const Exchanges& exchanges, int output_len);

// One event of the stream.
struct StreamEvent {
  bool is_end = false;    // "[DONE]", or the reason why the answer ends here
  bool is_token = false;  // it carries part of the answer
  std::string text;
  std::optional<int> prompt_tokens, output_tokens, cached_tokens;  // "usage"
};

// Errors (kFailed): an event that is an error, or not JSON. A chat's first event, which only names
// the role, is not a token.
Result<StreamEvent> ReadStreamEvent(std::string_view data, Endpoint endpoint);

}  // namespace pinion::harness
