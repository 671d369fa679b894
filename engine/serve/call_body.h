#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/serve/answer_parser.h"

namespace pinion {

// Reads the text between the marks of calls as the model writes them, and turns their arguments
// into JSON as they come. Its text may come in pieces of any size; time and memory are linear in
// it. Nothing is given away until the text is certain to be calls.
class CallBody {
 public:
  virtual ~CallBody() = default;

  void Push(std::string_view text);
  // The body ends here. Whether it is complete; if it is not, its last call is cut off.
  bool End();
  // Closes the call in progress of a body that is certain, if no value of it has begun without its
  // end: the rest of the body is missing although what ends it has come. A call that is cut within
  // a value stays cut, because the caller of the tool must not take a part of a value for all of
  // it.
  void CloseCall() {
    if (is_between_arguments()) EndCall();
  }

  // From now on the body stays calls, whatever follows: a tool of the request is called and the
  // first of its arguments has begun, or the marks before them occur in no text.
  bool certain() const { return certain_; }
  // The text is not a body, or not one any more; nothing behind that is read.
  bool broken() const { return broken_; }
  // The body has ended by itself.
  bool done() const { return done_; }
  // The text that has been pushed and not been read.
  std::string_view rest() const { return std::string_view(text_).substr(at_); }
  // The calls since the last time. Of the first, if it has no name, these are more arguments.
  std::vector<ToolCall> TakeCalls() { return std::exchange(given_.calls, {}); }

 protected:
  // Reads one more piece of syntax; false: more text is needed.
  virtual bool Step() = 0;
  // Called at the end of a body that is not broken; whether it may end there.
  virtual bool Complete() = 0;
  // Whether the call in progress would be whole if its arguments ended here.
  virtual bool is_between_arguments() const = 0;

  bool empty() const { return at_ == text_.size(); }
  char front() const { return text_[at_]; }
  void Skip(size_t bytes) { at_ += bytes; }
  void SkipSpace();
  bool Break();  // returns false
  // Takes `mark` if the rest begins with it.
  bool Take(std::string_view mark);
  // Whether the rest may yet become `mark`, but is shorter.
  bool MayBecome(std::string_view mark) const;
  // Takes the text before `mark` and the mark, once that has come.
  std::optional<std::string_view> TakeUntil(std::string_view mark);
  // Takes the text before the first of these characters, once one has come.
  std::optional<std::string_view> TakeUntilAnyOf(std::string_view ends);

  void AddCall(ToolCall call) { given_.calls.push_back(std::move(call)); }  // all of it
  void BeginCall(std::string_view name);      // and its object of arguments
  void BeginArgument(std::string_view name);  // all but its value
  void AddJson(std::string_view json) { given_.AddArguments(json); }
  void AddText(std::string_view text);  // within the quotes of a JSON string
  void EndCall() { AddJson("}"); }
  void SetCertain() { certain_ = true; }
  void SetDone() { done_ = true; }

 private:
  std::string text_;  // of which at_ bytes are read; 0 between calls of Push
  size_t at_ = 0;
  size_t searched_ = 0;  // bytes of text_ that need not be searched again
  bool certain_ = false, broken_ = false, done_ = false;
  bool has_arguments_ = false;  // the call in progress
  ParsedOutput given_;
};

// How many of the last bytes of `text` may be the beginning of a mark whose rest is yet to come.
size_t HeldFor(std::string_view text, std::string_view mark);

// Readers of one body each; `tools` outlives them.
// {"name": NAME, "arguments": {...}}
std::unique_ptr<CallBody> MakeHermesBody(const KnownTools& tools);
// The same with "parameters", several of them with ';' between; only tools of the request.
std::unique_ptr<CallBody> MakeLlamaBody(const KnownTools& tools);
// A list of what Hermes has one of.
std::unique_ptr<CallBody> MakeGraniteBody(const KnownTools& tools);
// The same, or NAME{...}, NAME[ARGS]{...}, several of them.
std::unique_ptr<CallBody> MakeMistralBody(const KnownTools& tools);
// <function=NAME><parameter=KEY>VALUE</parameter></function>, as often as the model likes.
std::unique_ptr<CallBody> MakeCoderBody(const KnownTools& tools);
// NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>
std::unique_ptr<CallBody> MakeGlmBody(const KnownTools& tools);
// <｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>
// </｜DSML｜invoke>, as often as the model likes; a value that is not a string is JSON.
std::unique_ptr<CallBody> MakeDsmlBody(const KnownTools& tools);
// <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>, as often as the model likes; V3
// has the name and a fenced block behind the separator. Any tool: the marks are tokens of their
// own.
std::unique_ptr<CallBody> MakeDeepSeekBody(const KnownTools& tools);
// call:NAME{KEY:VALUE,...}, strings between <escape> or <|"|>, lists and objects of the same.
std::unique_ptr<CallBody> MakeGemmaBody(const KnownTools& tools);
// [NAME(KEY=VALUE, ...), ...], values as Python writes constants; only tools of the request.
std::unique_ptr<CallBody> MakePythonBody(const KnownTools& tools);

}  // namespace pinion
