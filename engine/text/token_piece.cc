#include "engine/text/token_piece.h"

#include <span>

#include "engine/text/component.h"
#include "engine/text/decoder_stages.h"
#include "engine/text/utf8.h"

namespace pinion {

std::string TokenPiece(const Tokenizer& tokenizer, int32_t id) {
  // Twice, since a decoder may drop the space at the beginning of a text.
  const int32_t ids[] = {id, id};
  const std::string alone = tokenizer.Decode(std::span(ids, 1), false);
  std::string twice = tokenizer.Decode(ids, false);
  const std::string spelt = tokenizer.TokenText(id);
  const bool is_cut = alone.find(kReplacementUtf8) != std::string::npos &&
                      spelt.find(kReplacementUtf8) == std::string::npos;
  if (!is_cut) return twice.starts_with(alone) ? twice.substr(alone.size()) : alone;
  if (const auto byte = ByteOfToken(spelt)) return std::string(1, *byte);
  std::string bytes;
  return CharactersToBytes(spelt, bytes) ? bytes : alone;
}

}  // namespace pinion
