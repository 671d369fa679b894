#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"

namespace pinion {

// The parts of a text with a gap, besides the part before the gap, which is the prompt.
struct FillIn {
  std::string suffix;                                            // what follows the gap
  std::string begun = {};                                        // what the gap begins with
  std::vector<std::pair<std::string, std::string>> others = {};  // names and texts of other files
};

// The special tokens with which a model was taught to fill gaps, as its tokenizer writes them.
// Immutable.
class FillInTokens {
 public:
  // Unset if the tokenizer lacks one of the three that a gap takes.
  static std::optional<FillInTokens> Find(const Tokenizer& tokenizer);

  // Files first, each behind its name if there are tokens for that; then prefix, suffix, the gap
  // (the order that all these models know).
  std::string Prompt(const std::string& prefix, const FillIn& fill) const;
  // Tokens by which such a model says that the gap is filled, besides its usual ends.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  std::string prefix_, suffix_, middle_, repository_, file_;  // the last two may be empty
  std::vector<int32_t> ends_;
};

}  // namespace pinion
