#include "engine/base/printable.h"

namespace pinion {
namespace {

// C1, from U+0080 to U+009F, in UTF-8: terminals may take U+009B for the start of a sequence.
bool IsC1(std::string_view two) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(two[at]); };
  return two.size() == 2 && byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F;
}

bool IsC0OrDel(char c) { return (c >= 0 && c < ' ') || c == '\x7F'; }

}  // namespace

std::string Printable(std::string_view text, std::string_view kept) {
  std::string shown;
  for (size_t at = 0; at < text.size(); ++at) {
    if (IsC1(text.substr(at, 2))) {
      shown += '?';
      ++at;
    } else {
      const bool drops = IsC0OrDel(text[at]) && kept.find(text[at]) == kept.npos;
      shown += drops ? '?' : text[at];
    }
  }
  return shown;
}

}  // namespace pinion
