#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/text/steps.h"

namespace pinion {

// SentencePiece's precompiled normalisation rules: a double-array trie (Darts) from byte sequences
// to replacements. Immutable; thread-safe.
class Charsmap {
 public:
  // From the base64 text in tokenizer.json. Errors: text that is not base64, sizes that do not fit.
  static Result<std::shared_ptr<const Charsmap>> Parse(std::string_view base64);

  // An error if the rules make more of the text than `growth` allows.
  Result<std::string> Apply(std::string_view text, const Growth& growth) const;

 private:
  // The replacement of `chunk`: the rule of its shortest prefix that has one, as in the reference.
  std::optional<std::string_view> Find(std::string_view chunk) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;  // each ends with a zero byte
};

}  // namespace pinion
