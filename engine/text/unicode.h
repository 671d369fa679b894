#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pinion {

// The Unicode tables that the tokenizers need; unicode.cc is the only user of ICU (Debian's knows
// Unicode 15). Texts are valid UTF-8. Thread-safe.

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// The reference's normalisers know Unicode 9: younger characters pass unchanged.
std::string NormalizeUnicode(std::string_view text, UnicodeForm form);

// Character by character, so without the special final sigma, as the reference does.
std::string LowercaseUnicode(std::string_view text);

// First and last of each range.
using CodePointRanges = std::vector<std::pair<char32_t, char32_t>>;

// The byte offsets where the text's user-perceived characters end, in order.
std::vector<size_t> GraphemeEnds(std::string_view text);

bool IsWhitespace(char32_t c);     // property White_Space
bool IsWordCharacter(char32_t c);  // \w of UTS 18
bool IsHanIdeograph(char32_t c);   // the blocks that BERT's normaliser sets off with spaces

// Classes as in the reference's own tables, which stop at Unicode 8 (the first one's at 9).
bool IsCombiningMark(char32_t c);     // general category M
bool IsAccent(char32_t c);            // general category Mn
bool IsControl(char32_t c);           // general categories Cc, Cf and Co
CodePointRanges PunctuationRanges();  // general category P, and ASCII's symbols

bool IsScriptName(std::string_view name);

// The code points of property `name` ("L", "Lu", "Han", ...), as ranges, that Unicode assigned
// after version 14, at which the regular expression library's tables end. Empty for unknown names.
CodePointRanges YoungCodePoints(std::string_view name);

}  // namespace pinion
