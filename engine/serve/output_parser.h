#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"
#include "engine/serve/call_body.h"
#include "engine/serve/json_call.h"

namespace pinion {

// Tells the reasoning, the calls and the text of one answer apart as they come, in pieces of any
// size: what it gives depends on the text alone, not on where it was cut. A call whose arguments do
// not stream is given when it is complete; one that does not read as such is a part of the text,
// byte for byte. White space beside reasoning and calls is no text. Takes time and memory linear in
// the text.
class OutputParser final : public AnswerParser {
 public:
  explicit OutputParser(OutputRules rules);

  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  // kArguments: of a call that streams; kCallRest: of its object; kCallEnd: its mark, if it comes;
  // kBetween: behind one of several; kNext: the head of another; kItem: a call that is an object
  // but does not begin with its name; kNamed: behind a call whose name is not in an object; kBody:
  // the text that a CallBody reads.
  enum class Part {
    kThought,
    kContent,
    kCall,
    kBody,
    kArguments,
    kCallRest,
    kCallEnd,
    kBetween,
    kNext,
    kItem,
    kNamed
  };

  std::string_view held() const { return std::string_view(text_).substr(past_); }
  bool Step();  // false: more text is needed
  bool StepThought();
  bool StepContent();
  bool StepCall();
  bool StepBody();
  bool StepCallHead();
  bool StepArguments();
  bool StepCallEnd();
  bool StepBetween();
  bool StepNext();
  bool StepItem();
  bool StepNamed();
  CallHead ReadFirstHead();
  CallHead ReadHead(std::string_view text) const;
  void BeginArguments(CallHead head);
  void BeginItem(size_t at, bool is_first);
  void AddCall(ToolCall call);
  Part PartBehind() const;
  bool BeginThought();
  bool BeginCall(std::string_view begin, size_t at);
  bool EndCall(std::string_view end);
  void GiveBody();
  bool LeaveBody();
  bool EndBody(std::string_view end);
  void LeaveCall();
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
  size_t item_at_ = 0;        // where in held() the item begins: behind the bracket of its list
  bool in_string_ = false;    // where scanned_ is
  bool skips_space_ = false;  // after reasoning or a call
  bool at_start_ = true;      // there was no text and no call yet
  bool may_think_ = true;     // nor reasoning
  size_t calls_ = 0;
  std::unique_ptr<CallBody> body_;  // in part kBody; has read the first scanned_ bytes of held()
  bool may_stream_ = false;         // the call in progress, if its head turns out to be one
  bool drops_ = false;              // the call that streams, because only the first one counts
  bool in_list_ = false;            // the call that streams is one of a list
  bool is_first_ = false;           // the item, so that its body may yet be text
  bool in_object_ = false;          // its arguments are in an object with its name
  JsonEnd json_;                    // of its arguments, then of its object
};

}  // namespace pinion
