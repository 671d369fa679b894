#include "engine/text/charsmap.h"

#include <cstring>

#include "engine/base/strings.h"
#include "engine/text/unicode.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

Result<std::string> DecodeBase64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int digit = Base64Digit(c);
    if (digit < 0) return Fail(ErrorCode::kCorrupt, "precompiled_charsmap is not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return bytes;
}

// The fields of one trie unit, as Darts-clone packs them.
bool HasLeaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

// As in the reference, clusters from this many bytes on are looked up character by character only.
constexpr size_t kMaxClusterBytes = 6;

}  // namespace

Result<std::shared_ptr<const Charsmap>> Charsmap::Parse(std::string_view base64) {
  PINION_ASSIGN(const std::string bytes, DecodeBase64(base64));
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - sizeof trie_bytes)
    return Fail(ErrorCode::kCorrupt, StrCat("precompiled_charsmap of ", bytes.size(),
                                            " bytes states a trie of ", trie_bytes));
  auto map = std::make_shared<Charsmap>();
  map->trie_.resize(trie_bytes / 4);
  std::memcpy(map->trie_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  map->replacements_ = bytes.substr(sizeof trie_bytes + trie_bytes);
  return std::shared_ptr<const Charsmap>(std::move(map));
}

std::optional<std::string_view> Charsmap::Find(std::string_view chunk) const {
  // In a double array, the child for a byte lies at node ^ offset ^ byte, and its label confirms
  // it. The file is untrusted, so every index is checked.
  uint32_t node = Offset(trie_[0]);
  for (char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || Label(trie_[node]) != byte) return std::nullopt;
    const bool leaf = HasLeaf(trie_[node]);
    node ^= Offset(trie_[node]);
    if (!leaf) continue;
    if (node >= trie_.size() || Value(trie_[node]) >= replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(Value(trie_[node]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

Result<std::string> Charsmap::Apply(std::string_view text, const Growth& growth) const {
  std::string mapped;
  size_t begin = 0;
  for (const size_t end : GraphemeEnds(text)) {
    std::string_view cluster = text.substr(begin, end - begin);
    begin = end;
    PINION_TRY(growth.Allow(mapped.size()));
    if (cluster.size() < kMaxClusterBytes) {
      if (const auto found = Find(cluster)) {
        mapped.append(*found);
        continue;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, Utf8Length(cluster[0]));
      mapped.append(Find(character).value_or(character));
      cluster.remove_prefix(character.size());
    }
  }
  return SanitizeUtf8(mapped);  // a hostile table may hold anything
}

}  // namespace pinion
