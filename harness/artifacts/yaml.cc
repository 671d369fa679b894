#include "harness/artifacts/yaml.h"

#include <algorithm>
#include <string_view>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// The characters that YAML 1.1 or 1.2 leave out of a stream, or that break lines in one of them, as
// UTF-8, with their escapes, which JSON and YAML share.
struct Unsafe {
  std::string_view text;
  const char* escape;
};
constexpr Unsafe kUnsafe[] = {{"\x7F", "\\u007f"},         {"\xE2\x80\xA8", "\\u2028"},
                              {"\xE2\x80\xA9", "\\u2029"}, {"\xEF\xBB\xBF", "\\ufeff"},
                              {"\xEF\xBF\xBE", "\\ufffe"}, {"\xEF\xBF\xBF", "\\uffff"}};

// U+0080 to U+009F are C2 80 to C2 9F.
bool IsC1(std::string_view rest) {
  return rest.size() > 1 && rest[0] == '\xC2' && static_cast<unsigned char>(rest[1]) < 0xA0;
}

std::string Escaped(const std::string& json) {
  std::string safe;
  for (size_t i = 0; i < json.size();) {
    const std::string_view rest = std::string_view(json).substr(i);
    const Unsafe* found = nullptr;
    for (const Unsafe& one : kUnsafe)
      if (rest.starts_with(one.text)) found = &one;
    if (found) {
      safe += found->escape;
      i += found->text.size();
    } else if (IsC1(rest)) {
      const auto code = static_cast<unsigned char>(rest[1]);
      safe += StrCat("\\u00", "0123456789abcdef"[code >> 4U], "0123456789abcdef"[code & 15U]);
      i += 2;
    } else {
      safe += json[i++];
    }
  }
  return safe;
}

}  // namespace

std::string YamlText(const std::string& text) { return Escaped(Json(text).Dump()); }

std::string YamlSafeJson(const Json& value, int indent) { return Escaped(value.Dump(indent)); }

std::string Indented(const std::string& text, const std::string& by) {
  std::string indented;
  for (const std::string& line : Split(text, '\n')) indented += StrCat(by, line, "\n");
  return indented;
}

std::string YamlSafeLine(const std::string& line) {
  std::string safe = Escaped(line);
  std::replace_if(
      safe.begin(), safe.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return safe;
}

}  // namespace pinion::harness
