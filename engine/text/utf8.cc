#include "engine/text/utf8.h"

namespace pinion {
namespace {

// How many bytes follow a lead byte, and the range of the first of them (Unicode standard, table
// 3-7, which excludes overlong forms, surrogates and code points above U+10FFFF).
struct Lead {
  size_t length;
  unsigned char low, high;
};

Lead Classify(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = Classify(byte(0));
  if (lead.length == 1) return {byte(0), 1, Utf8Step::Kind::kValid};
  if (lead.length == 0) return {0xFFFD, 1, Utf8Step::Kind::kInvalid};
  char32_t code_point = byte(0) & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {0xFFFD, i, Utf8Step::Kind::kIncomplete};
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {0xFFFD, i, Utf8Step::Kind::kInvalid};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {code_point, lead.length, Utf8Step::Kind::kValid};
}

void AppendUtf8(std::string& dst, char32_t c) {
  const auto tail = [&](int shift) {
    dst.push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x80) {
    dst.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    dst.push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    dst.push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6), tail(0);
  } else {
    dst.push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12), tail(6), tail(0);
  }
}

std::string ToUtf8(char32_t code_point) {
  std::string text;
  AppendUtf8(text, code_point);
  return text;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    if (static_cast<unsigned char>(text[0]) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const Utf8Step step = DecodeUtf8(text);
    if (step.kind != Utf8Step::Kind::kValid) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string SanitizeUtf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = DecodeUtf8(text);
    if (step.kind == Utf8Step::Kind::kValid)
      clean.append(text.substr(0, step.length));
    else
      clean.append(kReplacementUtf8);
    text.remove_prefix(step.length);
  }
  return clean;
}

}  // namespace pinion
