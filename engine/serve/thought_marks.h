#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/sample/thought.h"
#include "engine/serve/output_format.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The marks around a model's reasoning as its tokens. Immutable; any thread.
class ThoughtMarks {
 public:
  // Nothing if there is no format, or the vocabulary of `vocabulary` tokens cannot write its marks.
  // The tokenizer outlives the object.
  static std::optional<ThoughtMarks> Find(const ThoughtFormat* format, const Tokenizer& tokenizer,
                                          size_t vocabulary);

  // For an answer of any length of reasoning to a prompt that does not begin it.
  const ThoughtRules& rules() const { return rules_; }

  // How many tokens of reasoning a prompt ends with; -1: it does not end within any. Reasoning goes
  // on to its mark's end; text of a message about the mark does not count, since the special tokens
  // between messages come after it.
  int TokensIn(std::span<const int32_t> prompt) const;

 private:
  explicit ThoughtMarks(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  const Tokenizer* tokenizer_;
  ThoughtRules rules_;
};

}  // namespace pinion
