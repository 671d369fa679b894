#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// Byte ranges [first, second) of one text.
using Spans = std::vector<std::pair<size_t, size_t>>;

// A regular expression as tokenizer.json writes it (Oniguruma's Ruby syntax, Unicode classes), run
// by PCRE2 with JIT. regex.cc is the only user of PCRE2. Immutable; thread-safe.
class Regex {
 public:
  // Errors: a pattern that does not compile, or that uses a feature PCRE2 lacks.
  static Result<std::shared_ptr<const Regex>> Compile(std::string_view pattern);
  // Matches exactly this text.
  static Result<std::shared_ptr<const Regex>> Literal(std::string_view text);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // All matches in valid UTF-8 `text`, from left to right, not overlapping. An error if the pattern
  // needs too many steps on this text.
  Result<Spans> FindAll(std::string_view text) const;
  // The least number of bytes that a match consumes.
  size_t least_bytes() const;

 private:
  struct State;
  explicit Regex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The pattern in PCRE2's dialect: \s and \w with today's Unicode meaning, classes completed with
// code points younger than PCRE2's tables, Oniguruma's \uHHHH and class intersections spelt out.
Result<std::string> TranslatePattern(std::string_view pattern);

// Code point ranges in the form used inside a class: "\x{41}-\x{5a}...".
std::string ClassText(const std::vector<std::pair<char32_t, char32_t>>& ranges);

}  // namespace pinion
