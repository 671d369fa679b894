#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pinion {

// One decoding step over UTF-8 as the Unicode standard recommends (maximal subparts): of invalid
// bytes, `length` covers exactly those that one U+FFFD replaces.
struct Utf8Step {
  enum class Kind { kValid, kInvalid, kIncomplete };
  char32_t code_point;  // U+FFFD unless kValid
  size_t length;        // bytes, at least 1
  Kind kind;            // kIncomplete: the text ends inside a so far valid character
};

// The step at the start of `text`, which must not be empty.
Utf8Step DecodeUtf8(std::string_view text);

void AppendUtf8(std::string& dst, char32_t code_point);
std::string ToUtf8(char32_t code_point);

// Replaces every invalid sequence by U+FFFD.
std::string SanitizeUtf8(std::string_view text);
bool IsValidUtf8(std::string_view text);

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character that `lead` starts; 1 for bytes that start none. For valid UTF-8 only.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace pinion
