#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// The input of a chat template. Fields of type Json are passed on unchanged; null means None.
struct ChatRequest {
  std::string chat_template;
  Json messages;  // array
  Json tools;     // array or null
  Json kwargs;    // object or null: special tokens, add_generation_prompt, ...
  bool continue_final_message = false;
  // Contents become strings or parts of text, whichever the template writes: not as transformers,
  // whose users choose.
  bool fits_contents = false;
  // Messages of the role `system` behind others go to the first one if the template refuses them
  // there.
  bool moves_instructions = false;
};

// Renders chat templates with Jinja2 in a helper process, a Python, as transformers does: see
// README of engine/text. Templates are untrusted: a render that takes more than 2 s is an error,
// and the helper is restarted. Thread rule: one call at a time.
class ChatRenderer {
 public:
  // `now`: ISO time that strftime_now shall see; unset: the clock.
  static Result<std::unique_ptr<ChatRenderer>> Start(std::optional<std::string> now = {});
  ~ChatRenderer();
  // The error's message is "<PythonExceptionType>: <text>" if the template raised one.
  Result<std::string> Render(const ChatRequest& request);

 private:
  struct State;
  explicit ChatRenderer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pinion
