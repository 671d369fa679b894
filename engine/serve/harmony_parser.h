#pragma once

#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"
#include "engine/serve/json_call.h"

namespace pinion {

// gpt-oss's answers (OpenAI's Harmony format): messages, each "<|start|>assistant", a header that
// names a channel and perhaps a recipient, "<|message|>", a body and "<|end|>" or "<|call|>"; the
// prompt has the first message's start. Channel analysis is reasoning, a recipient "functions.NAME"
// makes the body a call, all else is text. A body of a call that does not begin with a brace is
// text, and so is what follows the arguments. Time and memory are linear in the text.
class HarmonyParser final : public AnswerParser {
 public:
  explicit HarmonyParser(OutputRules rules);
  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  // kArguments: a call that has begun; kPast: the text behind them.
  enum class Kind { kText, kThought, kCall, kArguments, kPast };

  std::string_view held() const { return std::string_view(text_).substr(past_); }
  bool Step(bool last);
  bool StepHeader();
  bool StepBody();
  void BeginBody(std::string_view header);
  void Write(std::string_view body);
  void WriteCall(std::string_view body);
  void BeginCall();
  void EndBody();

  OutputRules rules_;
  ParsedOutput parsed_;
  std::string text_;  // of which past_ bytes are done with
  size_t past_ = 0;
  bool in_body_ = false, at_start_ = true;
  Kind kind_ = Kind::kText;
  std::string tool_;    // of the call in progress
  std::string space_;   // before the arguments, and behind them
  JsonEnd json_;        // of the arguments
  bool drops_ = false;  // the call in progress, because only the first one counts
  size_t calls_ = 0;
};

}  // namespace pinion
