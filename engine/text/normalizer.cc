#include "engine/text/normalizer.h"

#include <memory>
#include <vector>

#include "engine/base/strings.h"
#include "engine/text/charsmap.h"
#include "engine/text/component.h"
#include "engine/text/unicode.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

using Step = Steps<std::string>::Step;

constexpr std::string_view kRole = "normalizer";

// Rewrites text character by character: `map` appends the replacement of each.
template <typename Map>
void MapCharacters(std::string& text, Map map) {
  std::string mapped;
  mapped.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = DecodeUtf8(rest);
    map(mapped, step.code_point);
    rest.remove_prefix(step.length);
  }
  text = std::move(mapped);
}

template <typename Drop>
void DropCharacters(std::string& text, Drop drop) {
  MapCharacters(text, [&](std::string& dst, char32_t c) {
    if (!drop(c)) AppendUtf8(dst, c);
  });
}

Step Form(UnicodeForm form) {
  return [form](std::string& text, const Growth&) -> Status {
    text = NormalizeUnicode(text, form);
    return {};
  };
}

Status Lowercase(std::string& text, const Growth&) {
  text = LowercaseUnicode(text);
  return {};
}

Status StripAccents(std::string& text, const Growth&) {
  DropCharacters(text, IsCombiningMark);
  return {};
}

Status ByteLevel(std::string& text, const Growth&) {
  text = BytesToCharacters(text);
  return {};
}

// SentencePiece's "nmt" rules: drop control characters, turn odd white space into spaces.
Status Nmt(std::string& text, const Growth&) {
  MapCharacters(text, [](std::string& dst, char32_t c) {
    const bool dropped = (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                         c == 0x7F || c == 0x8F || c == 0x9F;
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    if (!dropped) AppendUtf8(dst, space ? U' ' : c);
  });
  return {};
}

Result<Step> MakeStrip(const Json& component) {
  PINION_ASSIGN(const bool left, Optional<bool>(component, "strip_left", true));
  PINION_ASSIGN(const bool right, Optional<bool>(component, "strip_right", true));
  return Step([left, right](std::string& text, const Growth&) -> Status {
    size_t begin = 0, end = text.size();
    while (left && begin < end) {
      const Utf8Step step = DecodeUtf8(std::string_view(text).substr(begin));
      if (!IsWhitespace(step.code_point)) break;
      begin += step.length;
    }
    while (right && end > begin) {
      size_t last = end - 1;
      while (last > begin && (text[last] & 0xC0) == 0x80) --last;
      if (!IsWhitespace(DecodeUtf8(std::string_view(text).substr(last)).code_point)) break;
      end = last;
    }
    text = text.substr(begin, end - begin);
    return {};
  });
}

Result<Step> MakePrepend(const Json& component) {
  PINION_ASSIGN(std::string prefix, Require<std::string>(component, "prepend"));
  return Step([prefix = std::move(prefix)](std::string& text, const Growth& growth) -> Status {
    if (text.empty()) return {};
    PINION_TRY(growth.Allow(prefix.size() + text.size()));
    text.insert(0, prefix);
    return {};
  });
}

Result<Step> MakeReplace(const Json& component) {
  PINION_ASSIGN(std::shared_ptr<const Regex> pattern, ReadPattern(component));
  PINION_ASSIGN(std::string content, Require<std::string>(component, "content"));
  return Step(
      [pattern, content = std::move(content)](std::string& text, const Growth& growth) -> Status {
        PINION_ASSIGN(text, ReplaceAll(text, *pattern, content, growth));
        return {};
      });
}

void CleanBertText(std::string& text) {
  MapCharacters(text, [](std::string& dst, char32_t c) {
    if (c == '\t' || c == '\n' || c == '\r')
      dst.push_back(' ');
    else if (c != 0 && c != 0xFFFD && !IsControl(c))
      AppendUtf8(dst, IsWhitespace(c) ? U' ' : c);
  });
}

Result<Step> MakeBert(const Json& component) {
  PINION_ASSIGN(const bool clean, Optional<bool>(component, "clean_text", true));
  PINION_ASSIGN(const bool chinese, Optional<bool>(component, "handle_chinese_chars", true));
  PINION_ASSIGN(const bool lowercase, Optional<bool>(component, "lowercase", true));
  PINION_ASSIGN(const bool accents, Optional<bool>(component, "strip_accents", lowercase));
  return Step([=](std::string& text, const Growth&) -> Status {
    if (clean) CleanBertText(text);
    if (chinese)
      MapCharacters(text, [](std::string& dst, char32_t c) {
        const std::string character = ToUtf8(c);
        dst += IsHanIdeograph(c) ? StrCat(' ', character, ' ') : character;
      });
    if (accents) {
      text = NormalizeUnicode(text, UnicodeForm::kNfd);
      DropCharacters(text, IsAccent);
    }
    if (lowercase) text = LowercaseUnicode(text);
    return {};
  });
}

Result<Step> MakePrecompiled(const Json& component) {
  PINION_ASSIGN(const std::string base64, Require<std::string>(component, "precompiled_charsmap"));
  PINION_ASSIGN(std::shared_ptr<const Charsmap> map, Charsmap::Parse(base64));
  return Step([map](std::string& text, const Growth& growth) -> Status {
    PINION_ASSIGN(text, map->Apply(text, growth));
    return {};
  });
}

Result<Step> MakeStep(const Json& component, std::string_view type) {
  if (type == "NFC") return Form(UnicodeForm::kNfc);
  if (type == "NFD") return Form(UnicodeForm::kNfd);
  if (type == "NFKC") return Form(UnicodeForm::kNfkc);
  if (type == "NFKD") return Form(UnicodeForm::kNfkd);
  if (type == "Lowercase") return Step(Lowercase);
  if (type == "Strip") return MakeStrip(component);
  if (type == "StripAccents") return Step(StripAccents);
  if (type == "Prepend") return MakePrepend(component);
  if (type == "Replace") return MakeReplace(component);
  if (type == "ByteLevel") return Step(ByteLevel);
  if (type == "Nmt") return Step(Nmt);
  if (type == "BertNormalizer") return MakeBert(component);
  if (type == "Precompiled") return MakePrecompiled(component);
  return UnknownComponent(kRole, type,
                          "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, "
                          "Replace, ByteLevel, Nmt, BertNormalizer, Precompiled, Sequence");
}

}  // namespace

Result<Normalizer> MakeNormalizer(const Json& component) {
  PINION_ASSIGN(std::vector<Step> steps, ReadTree(component, kRole, "normalizers", MakeStep));
  return Steps<std::string>{kRole, "bytes", [](const std::string& text) { return text.size(); },
                            std::move(steps)};
}

}  // namespace pinion
