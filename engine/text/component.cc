#include "engine/text/component.h"

#include <array>

#include "engine/text/utf8.h"

namespace pinion {
namespace {

// Bytes that Latin-1 prints stand for themselves, the others for U+0100, U+0101, ... in order.
struct ByteTable {
  std::array<char32_t, 256> character;
  std::array<int16_t, 0x144> byte;  // -1: none
  ByteTable() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteTable& Bytes() {
  static const ByteTable table;
  return table;
}

}  // namespace

Result<std::string> ComponentType(const Json& component, std::string_view role) {
  if (!component.is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("a ", role, " is ", component.type_name(), ", want an object"));
  auto type = Require<std::string>(component, "type");
  if (!type) return Unexpected(std::move(type).error().In(role));
  return type;
}

tl::unexpected<Error> UnknownComponent(std::string_view role, std::string_view type,
                                       std::string_view known) {
  return Fail(ErrorCode::kUnsupported,
              StrCat("unknown ", role, " '", type, "', Pinion knows ", known));
}

Result<std::shared_ptr<const Regex>> ReadPattern(const Json& component) {
  const Json* pattern = component.Find("pattern");
  if (!pattern || !pattern->is_object())
    return Fail(ErrorCode::kCorrupt, "'pattern' is missing, want {\"String\"} or {\"Regex\"}");
  if (pattern->Find("String")) {
    PINION_ASSIGN(const std::string text, Require<std::string>(*pattern, "String"));
    return Regex::Literal(text);
  }
  PINION_ASSIGN(const std::string text, Require<std::string>(*pattern, "Regex"));
  return Regex::Compile(text);
}

Result<std::string> ReadCharacter(const Json& component, std::string_view key,
                                  std::string_view fallback) {
  PINION_ASSIGN(const std::string text,
                Optional<std::string>(component, key, std::string(fallback)));
  if (text.empty() || Utf8Length(text[0]) != text.size())
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is '", text, "', want one character"));
  return text;
}

Result<std::string> ReplaceAll(std::string_view text, const Regex& pattern,
                               std::string_view content, const Growth& growth) {
  // The reference does not find anything in an empty text, not even an empty match.
  if (text.empty()) return std::string();
  PINION_ASSIGN(const Spans spans, pattern.FindAll(text));
  size_t size = text.size() + spans.size() * content.size();
  for (const auto& [begin, end] : spans) size -= end - begin;
  PINION_TRY(growth.Allow(size));
  std::string replaced;
  replaced.reserve(size);
  size_t at = 0;
  for (const auto& [begin, end] : spans) {
    replaced.append(text.substr(at, begin - at)).append(content);
    at = end;
  }
  replaced.append(text.substr(at));
  return replaced;
}

std::string BytesToCharacters(std::string_view text) {
  std::string characters;
  characters.reserve(text.size() + text.size() / 4);
  for (char c : text) AppendUtf8(characters, Bytes().character[static_cast<unsigned char>(c)]);
  return characters;
}

bool CharactersToBytes(std::string_view text, std::string& dst) {
  const size_t before = dst.size();
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    const int byte = step.code_point < Bytes().byte.size() ? Bytes().byte[step.code_point] : -1;
    if (byte < 0) {
      dst.resize(before);
      return false;
    }
    dst.push_back(static_cast<char>(byte));
    text.remove_prefix(step.length);
  }
  return true;
}

}  // namespace pinion
