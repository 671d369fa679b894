#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// A stretch of normalised text; no token crosses its ends.
struct Piece {
  std::string text;
  bool at_start = false;  // at the start of the whole input
};

// Cuts pieces into smaller ones (and may rewrite them). An error if they would grow beyond measure
// (Growth) or an expression gives up on them. Immutable; thread-safe.
using PreTokenizer = std::function<Status(std::vector<Piece>&)>;

// From tokenizer.json's "pre_tokenizer". Errors name the unknown or malformed part.
Result<PreTokenizer> MakePreTokenizer(const Json& component);

// The replacement and scheme of a Metaspace component, which is pre-tokenizer and decoder.
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;
  Prepend prepend;
  bool split;
  static Result<Metaspace> Read(const Json& component);
};

}  // namespace pinion
