#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"
#include "engine/serve/json_call.h"
#include "engine/serve/output_parser.h"

namespace pinion {

// The answer to a request whose tools must be called: JSON, whatever the model's own format is,
// behind the reasoning, if there may be any. A call that is cut off has what came of its arguments;
// a text that is cut off before the first call has its name is content.
class ForcedParser final : public AnswerParser {
 public:
  explicit ForcedParser(OutputRules rules);

  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  // kRest: of the object whose arguments have ended. kPlain: not as the grammar wants it.
  enum class Part { kStart, kArguments, kRest, kBetween, kHead, kDone, kPlain };

  void Step(ParsedOutput& parsed);  // as often as it changes part_, or takes text
  void StepStart(ParsedOutput& parsed);
  void StepHead(size_t at, ParsedOutput& parsed);
  void StepBetween();
  void Begin(std::string name, size_t bytes, ParsedOutput& parsed);
  void End(ParsedOutput& parsed);

  OutputRules rules_;
  std::optional<OutputParser> thoughts_;
  std::string text_;  // behind the reasoning, not yet done with
  Part part_ = Part::kStart;
  JsonEnd json_;  // of the arguments, then of the call
};

}  // namespace pinion
