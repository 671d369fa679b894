#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"

namespace pinion {

// The text that a token adds inside a longer text, a leading space included. A token that holds
// only a part of a character gives its bytes, which are then not valid UTF-8.
std::string TokenPiece(const Tokenizer& tokenizer, int32_t id);

}  // namespace pinion
