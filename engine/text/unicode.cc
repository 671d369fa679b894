#include "engine/text/unicode.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utext.h>

#include <memory>

#include "engine/base/check.h"
#include "engine/text/unicode16.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

const icu::Normalizer2* Base(UnicodeForm form, UErrorCode& status) {
  switch (form) {
    case UnicodeForm::kNfc:
      return icu::Normalizer2::getNFCInstance(status);
    case UnicodeForm::kNfd:
      return icu::Normalizer2::getNFDInstance(status);
    case UnicodeForm::kNfkc:
      return icu::Normalizer2::getNFKCInstance(status);
    case UnicodeForm::kNfkd:
      return icu::Normalizer2::getNFKDInstance(status);
  }
  return nullptr;
}

// A set from ICU's notation. Only our own constants come here, so an error is a bug.
std::unique_ptr<const icu::UnicodeSet> Set(const char16_t* notation) {
  UErrorCode status = U_ZERO_ERROR;
  auto set = std::make_unique<icu::UnicodeSet>(notation, status);
  CHECK(U_SUCCESS(status)) << u_errorName(status);
  set->freeze();
  return set;
}

CodePointRanges RangesOf(const icu::UnicodeSet& set) {
  CodePointRanges ranges;
  for (int32_t i = 0; i < set.getRangeCount(); ++i)
    ranges.emplace_back(set.getRangeStart(i), set.getRangeEnd(i));
  return ranges;
}

bool IsAscii(std::string_view text) {
  for (char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

char32_t Lowercase(char32_t c) {
  for (const LowercaseRange& range : kLowercaseAfterUnicode15)
    if (c >= range.first && c <= range.last)
      return static_cast<char32_t>(static_cast<int32_t>(c) + range.offset);
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

uint32_t CategoryMask(char32_t c) { return U_GET_GC_MASK(static_cast<UChar32>(c)); }

}  // namespace

std::string NormalizeUnicode(std::string_view text, UnicodeForm form) {
  if (IsAscii(text)) return std::string(text);
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* base = Base(form, status);
  CHECK(U_SUCCESS(status)) << u_errorName(status);
  static const auto known = Set(u"[:Age=9.0:]");
  const icu::FilteredNormalizer2 normalizer(*base, *known);
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  icu::UnicodeString normal;
  normalizer.normalize(icu::UnicodeString::fromUTF8(piece), normal, status);
  CHECK(U_SUCCESS(status)) << u_errorName(status);
  std::string result;
  normal.toUTF8String(result);
  return result;
}

std::string LowercaseUnicode(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.code_point == 0x130)  // the one character whose lower case is two
      lower.append("i\xCC\x87");
    else
      AppendUtf8(lower, Lowercase(step.code_point));
    text.remove_prefix(step.length);
  }
  return lower;
}

std::vector<size_t> GraphemeEnds(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  UText opened = UTEXT_INITIALIZER;
  utext_openUTF8(&opened, text.data(), static_cast<int64_t>(text.size()), &status);
  CHECK(U_SUCCESS(status)) << u_errorName(status);
  breaks->setText(&opened, status);
  CHECK(U_SUCCESS(status)) << u_errorName(status);
  std::vector<size_t> ends;
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next())
    ends.push_back(static_cast<size_t>(end));
  utext_close(&opened);
  return ends;
}

bool IsWhitespace(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }

bool IsWordCharacter(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) ||
         (CategoryMask(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK));
}

bool IsHanIdeograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// U+1CF2, U+1CF3 and U+111C9 have changed their category since.
bool IsCombiningMark(char32_t c) {
  static const auto set = Set(uR"([[[:M:] & [:Age=9.0:]] - [\U000111C9] \u1CF2 \u1CF3])");
  return set->contains(static_cast<UChar32>(c));
}

// U+1734, U+1885, U+1886, U+A9BD and U+111C9 have changed their category since.
bool IsAccent(char32_t c) {
  static const auto set =
      Set(uR"([[[:Mn:] & [:Age=8.0:]] - [\u1885\u1886\uA9BD\U000111C9] \u1734])");
  return set->contains(static_cast<UChar32>(c));
}

bool IsControl(char32_t c) {
  static const auto set = Set(u"[[[:Cc:][:Cf:]] & [:Age=8.0:] [:Co:]]");
  return set->contains(static_cast<UChar32>(c));
}

CodePointRanges PunctuationRanges() {
  static const auto set =
      Set(uR"([[[:P:] & [:Age=8.0:]] \u166D \U000111C9 [!-/] [\:-@] [\[-`] [\{-~]])");
  return RangesOf(*set);
}

bool IsScriptName(std::string_view name) {
  return u_getPropertyValueEnum(UCHAR_SCRIPT, std::string(name).c_str()) != UCHAR_INVALID_CODE;
}

CodePointRanges YoungCodePoints(std::string_view name) {
  for (char c : name)
    if (!u_isalnum(static_cast<unsigned char>(c)) && c != '_') return {};
  const std::string pattern = "[[:" + std::string(name) + ":]-[:Age=14.0:]]";
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), status);
  if (U_FAILURE(status)) return {};
  CodePointRanges ranges = RangesOf(set);
  for (const AssignedRange& range : kAfterUnicode15) {
    const std::string_view category = range.category;
    const bool belongs =
        name == "Alphabetic" ? category[0] == 'L' : category.substr(0, name.size()) == name;
    if (belongs) ranges.emplace_back(range.first, range.last);
  }
  if (name == "Han") ranges.emplace_back(0x2EBF0, 0x2EE5D);  // extension I
  return ranges;
}

}  // namespace pinion
