#include "engine/base/json_text.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace pinion {
namespace {

bool IsContinuation(std::string_view text, size_t at) {
  return at < text.size() && (text[at] & 0xC0) == 0x80;
}

// Bytes of the well-formed character of several bytes at `at`; 0 if there is none (Unicode 15,
// table 3-7).
size_t CharacterBytes(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0xC2 || first > 0xF4 || !IsContinuation(text, at + 1)) return 0;
  if (first < 0xE0) return 2;
  const auto second = static_cast<unsigned char>(text[at + 1]);
  // Overlong forms, surrogates and code points above U+10FFFF show in the second byte.
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F) ||
      !IsContinuation(text, at + 2))
    return 0;
  if (first < 0xF0) return 3;
  return IsContinuation(text, at + 3) ? 4 : 0;
}

void AppendEscape(std::string& out, char character) {
  static constexpr std::string_view kNamed = "\b\t\n\f\r\"\\", kNames = "btnfr\"\\";
  if (const size_t found = kNamed.find(character); found != kNamed.npos) {
    (out += '\\') += kNames[found];
    return;
  }
  char code[8];
  std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(character));
  out += code;
}

// Appends until `out` has more than `limit` bytes.
void AppendUpTo(std::string& out, const Json& value, size_t limit) {
  if (out.size() > limit) return;
  if (value.is_string()) {
    AppendJsonString(out, std::string_view(value.string()).substr(0, limit + 1));
  } else if (value.is_array()) {
    out += '[';
    for (size_t i = 0; i < value.array().size() && out.size() <= limit; ++i) {
      if (i > 0) out += ',';
      AppendUpTo(out, value.array()[i], limit);
    }
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    for (size_t i = 0; i < value.object().size() && out.size() <= limit; ++i) {
      const auto& [key, item] = value.object()[i];
      if (i > 0) out += ',';
      AppendJsonString(out, std::string_view(key).substr(0, limit + 1));
      out += ':';
      AppendUpTo(out, item, limit);
    }
    out += '}';
  } else {
    out += value.Dump();
  }
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  const size_t start = out.size();
  out += '"';
  size_t written = 0, at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x80) {
      const size_t length = CharacterBytes(text, at);
      if (length == 0) {  // rare: the library knows how many U+FFFD stand for damaged bytes
        out.resize(start);
        out += Json(text).Dump();
        return;
      }
      at += length;
    } else if (byte >= 0x20 && byte != '"' && byte != '\\') {
      ++at;
    } else {
      out.append(text, written, at - written);
      AppendEscape(out, text[at]);
      written = ++at;
    }
  }
  out.append(text, written, text.npos);
  out += '"';
}

std::string Excerpt(const Json& value, size_t bytes) {
  std::string text;
  AppendUpTo(text, value, bytes);
  if (text.size() <= bytes) return text;
  size_t end = bytes - 3;
  while (end > 0 && IsContinuation(text, end)) --end;  // never inside a character
  text.resize(end);
  return text + "...";
}

Json MergeObjects(std::vector<Json::Object> objects) {
  size_t count = 0;
  for (const auto& object : objects) count += object.size();
  std::vector<std::pair<std::string, Json>*> entries;
  entries.reserve(count);
  for (auto& object : objects)
    for (auto& entry : object) entries.push_back(&entry);
  // Sorted, not hashed: a stranger who knows the hash function can make keys that collide.
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return entries[left]->first < entries[right]->first;
  });
  // Each run of equal keys keeps the place of its first and the value of its last.
  std::vector<std::pair<std::string, Json>*> last(count);
  for (size_t begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && entries[order[end]]->first == entries[order[begin]]->first) ++end;
    last[order[begin]] = entries[order[end - 1]];
  }
  Json::Object merged;
  for (size_t i = 0; i < count; ++i)
    if (last[i]) merged.push_back(std::move(*last[i]));
  return Json(std::move(merged));
}

}  // namespace pinion
