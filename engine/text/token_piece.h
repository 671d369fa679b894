#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"

namespace pinion {

// What a token stands for within a text: its characters, with the space that it begins with, or,
// if it is a part of one character or cuts some, its bytes, which are no valid UTF-8 then.
std::string TokenPiece(const Tokenizer& tokenizer, int32_t id);

}  // namespace pinion
