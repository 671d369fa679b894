#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"

namespace pinion {

// Tells the reasoning, the calls and the text of one answer apart as they come, in pieces of any
// size: what it gives depends on the text alone, not on where it was cut. A call is given when it
// is complete; one that does not read as such is a part of the text, byte for byte. White space
// beside reasoning and calls is no text. Takes time and memory linear in the text.
class OutputParser final : public AnswerParser {
 public:
  explicit OutputParser(OutputRules rules);

  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  enum class Part { kThought, kContent, kCall };

  std::string_view held() const { return std::string_view(text_).substr(past_); }
  bool Step();  // false: more text is needed
  bool StepThought();
  bool StepContent();
  bool StepCall();
  bool BeginThought();
  bool BeginCall(std::string_view begin, size_t at);
  bool EndCall(std::string_view end);
  bool ScanJson();
  void WriteAllBut(size_t kept, std::string& dst);
  void Write(std::string_view text, std::string& dst);
  void EndAll();

  OutputRules rules_;
  ParsedOutput parsed_;
  Part part_ = Part::kContent;
  std::string text_;          // of which past_ bytes are done with
  size_t past_ = 0;           // 0 between calls of Push
  std::string space_;         // white space that is text if more text follows
  std::string begin_;         // what the call in progress began with
  size_t scanned_ = 0;        // bytes of held() that do not end the call
  bool in_string_ = false;    // where scanned_ is
  bool skips_space_ = false;  // after reasoning or a call
  bool at_start_ = true;      // there was no text and no call yet
  bool may_think_ = true;     // nor reasoning
  size_t calls_ = 0;
};

}  // namespace pinion
