#pragma once

#include <string>
#include <string_view>

#include "engine/serve/answer_parser.h"

namespace pinion {

// The answer to a request whose tools must be called: JSON from its first byte on, whatever the
// model's own format. The calls are given at the end; a text that was cut off is content.
class ForcedParser final : public AnswerParser {
 public:
  explicit ForcedParser(OutputRules rules) : rules_(std::move(rules)) {}

  ParsedOutput Push(std::string_view text, bool last) override;

 private:
  OutputRules rules_;
  std::string text_;
};

}  // namespace pinion
