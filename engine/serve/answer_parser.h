#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/output_format.h"

namespace pinion {

// The JSON that an answer is if tools must be called: arguments of the tool of this name, or, if it
// is empty, a list of calls.
struct ForcedCall {
  std::string name;
};

// The marks and formats that a parser looks for in the answer to one request.
struct OutputRules {
  const CallFormat* calls = nullptr;        // null: the client gave no tools
  const ThoughtFormat* thoughts = nullptr;  // null: none
  std::shared_ptr<const KnownTools> tools;  // not null if `calls` is not
  bool parallel = true;                     // false: only the first call counts
  bool starts_in_thought = false;           // the prompt ends with `thoughts->begin`
  bool shows_thoughts = true;
  std::optional<ForcedCall> forced = {};  // then nothing else is looked for; `tools` is not null

  bool any() const { return calls || thoughts || forced; }
};

// A part of an answer, taken apart. Of a call, the first part has the name, and the next ones have
// none: only the first of `calls` may go on with the last call of the part before.
struct ParsedOutput {
  std::string content, reasoning;
  std::vector<ToolCall> calls;

  // Of the call in progress.
  void AddArguments(std::string_view text);
  // The next part of the same answer.
  void Append(ParsedOutput next);
};

// Takes one answer apart as it comes, in pieces of any size: what it gives in all depends on the
// text alone, not on where it was cut. Arguments of a call are given as they come, if its format's
// reader can, or when the call is complete; a call whose name was given stays one, even if its
// arguments turn out to be cut off or not to be JSON.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  // The parts that are certain now. `last`: no more text follows.
  virtual ParsedOutput Push(std::string_view text, bool last) = 0;
};

// The parser of the rules' formats; null if there is nothing to look for.
std::unique_ptr<AnswerParser> MakeAnswerParser(OutputRules rules);

}  // namespace pinion
