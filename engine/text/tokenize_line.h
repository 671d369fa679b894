#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// Answers one request about text, as `pinion tokenize` reads them line by line:
//   {"text", "add_special_tokens"}               -> {"ids", "decoded"}
//   {"ids"}                                      -> {"decoded", "decoded_with_special"}
//   {"prompt_ids", "ids", "stream": true}        -> {"emit": [], "flush"}
//   {"messages", "tools", "kwargs",
//    "add_generation_prompt"}                    -> {"rendered", "ids"}
// Errors in the text or the template are answers too: {"error"}. Not thread-safe.
class LineTokenizer {
 public:
  // `chat_template`: instead of the tokenizer's own; `now`: ISO time for templates, unset: the
  // clock.
  LineTokenizer(const Tokenizer& tokenizer, std::optional<std::string> chat_template,
                std::optional<std::string> now);

  // An error if the line is not such a request, or the chat helper cannot be started.
  Result<Json> Answer(const Json& line);

 private:
  Result<Json> AnswerText(const Json& line);
  Result<Json> AnswerIds(const Json& line);
  Result<Json> AnswerStream(const Json& line);
  Result<Json> AnswerMessages(const Json& line);

  const Tokenizer& tokenizer_;
  std::optional<std::string> chat_template_, tool_template_, now_;
  std::unique_ptr<ChatRenderer> renderer_;  // started by the first line that needs it
};

// The template's variables: a request's "kwargs" override its own "add_generation_prompt" (default
// true), which overrides the tokenizer's special tokens.
Result<Json> ChatVariables(const Tokenizer& tokenizer, const Json& request);

}  // namespace pinion
