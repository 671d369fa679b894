#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/text/decoder.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/regex.h"

namespace pinion {

// The stages that decoder.cc makes by name; each constructor takes the component's settings.

// Turns GPT-2's printable characters back into bytes; tokens with other characters stay unchanged.
std::unique_ptr<DecoderStage> ByteLevelStage();
// The byte that a token <0xHH> stands for.
std::optional<char> ByteOfToken(std::string_view token);
// <0xHH> tokens. In a run that is not valid UTF-8 each becomes U+FFFD.
std::unique_ptr<DecoderStage> ByteFallbackStage(StreamMode mode);
std::unique_ptr<DecoderStage> MetaspaceStage(const Metaspace& metaspace);
// All tokens become one.
std::unique_ptr<DecoderStage> FuseStage();
// Removes `content` up to `start` times from the beginning and `stop` times from the end of each
// token.
std::unique_ptr<DecoderStage> StripStage(std::string content, size_t start, size_t stop);
std::unique_ptr<DecoderStage> ReplaceStage(std::shared_ptr<const Regex> pattern,
                                           std::string literal, std::string content);
// `suffix` ends a word and becomes a space, at the very end nothing.
std::unique_ptr<DecoderStage> SuffixStage(std::string suffix);
// Tokens that begin with `prefix` continue a word, the others begin one; cleanup: without the
// spaces before English punctuation.
std::unique_ptr<DecoderStage> WordPieceStage(std::string prefix, bool cleanup);
// A space between tokens: the default without a decoder.
std::unique_ptr<DecoderStage> JoinStage();

}  // namespace pinion
