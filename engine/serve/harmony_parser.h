#pragma once

#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"

namespace pinion {

// gpt-oss's answers (OpenAI's Harmony format): messages, each "<|start|>assistant", a header that
// names a channel and perhaps a recipient, "<|message|>", a body and "<|end|>" or "<|call|>"; the
// prompt has the first message's start. Channel analysis is reasoning, a recipient "functions.NAME"
// makes the body a call, all else is text. A body of a call that is no JSON object is text. Time
// and memory are linear in the text.
class HarmonyParser final : public AnswerParser {
 public:
  explicit HarmonyParser(OutputRules rules);
  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  enum class Kind { kText, kThought, kCall };

  std::string_view held() const { return std::string_view(text_).substr(past_); }
  bool Step(bool last);
  bool StepHeader();
  bool StepBody();
  void BeginBody(std::string_view header);
  void Write(std::string_view body);
  void EndBody();

  OutputRules rules_;
  ParsedOutput parsed_;
  std::string text_;  // of which past_ bytes are done with
  size_t past_ = 0;
  bool in_body_ = false, at_start_ = true;
  Kind kind_ = Kind::kText;
  std::string tool_, arguments_;  // of the call in progress
  size_t calls_ = 0;
};

}  // namespace pinion
