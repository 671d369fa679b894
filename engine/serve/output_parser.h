#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"
#include "engine/serve/call_body.h"
#include "engine/serve/json_call.h"

namespace pinion {

// Tells the reasoning, the calls and the text of one answer apart as they come, in pieces of any
// size: the result depends on the text alone, not on where it was cut. Anything that does not read
// as a call is a part of the text, byte for byte. White space beside reasoning and calls is not
// text. Takes time and memory linear in the text.
class OutputParser final : public AnswerParser {
 public:
  explicit OutputParser(OutputRules rules);

  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  // kBody: the text that a CallBody reads; kCall: text that turned out not to be a call, up to its
  // end; kCallEnd: the mark behind a body that has ended by itself, if it comes.
  enum class Part { kThought, kContent, kBody, kCall, kCallEnd };

  std::string_view held() const { return std::string_view(text_).substr(past_); }
  bool Step();  // false: more text is needed
  bool StepThought();
  bool StepContent();
  bool StepCall();
  bool StepBody();
  bool StepCallEnd();
  bool BeginThought();
  bool BeginCall(std::string_view begin, size_t at);
  bool EndCall(std::string_view end);
  void GiveBody();
  void GiveUpBody();
  bool LeaveBody();
  bool EndBody(std::string_view end);
  void LeaveCall();
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
  size_t scanned_ = 0;        // bytes of held() that a body has read, or that are text
  bool skips_space_ = false;  // after reasoning or a call
  bool at_start_ = true;      // there was no text and no call yet
  bool may_think_ = true;     // nor reasoning
  size_t calls_ = 0;
  std::unique_ptr<CallBody> body_;  // in part kBody; has read the first scanned_ bytes of held()
  bool drops_ = false;              // the call in progress, because only the first one counts
  JsonMark mark_;                   // behind text that is not a call
};

}  // namespace pinion
