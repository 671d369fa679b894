#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"
#include "engine/serve/output_parser.h"

namespace pinion {

// The answer to a request whose tools must be called: JSON, whatever the model's own format, behind
// the reasoning, if there may be any. The calls are given at the end; a text that was cut off is
// content.
class ForcedParser final : public AnswerParser {
 public:
  explicit ForcedParser(OutputRules rules);

  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  OutputRules rules_;
  std::optional<OutputParser> thoughts_;
  std::string text_;  // behind the reasoning
};

}  // namespace pinion
