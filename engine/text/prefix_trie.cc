#include "engine/text/prefix_trie.h"

#include <algorithm>

#include "engine/base/strings.h"

namespace pinion {

Result<PrefixTrie> PrefixTrie::Make(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  for (const auto& [token, id] : tokens)
    if (token.size() > kMaxTokenBytes)
      return Fail(ErrorCode::kCorrupt, StrCat("token ", id, " has ", token.size(),
                                              " bytes, want at most ", kMaxTokenBytes));
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  PrefixTrie trie;
  // Breadth first: the tokens of a node are [begin, end) of the sorted list, all of which begin
  // with the same `depth` bytes.
  struct Span {
    size_t begin, end, depth;
  };
  std::vector<Span> spans = {{0, tokens.size(), 0}};
  for (uint32_t node = 0; node < spans.size(); ++node) {
    auto [at, end, depth] = spans[node];
    for (; at < end && tokens[at].first.size() == depth; ++at)
      if (depth > 0) trie.nodes_[node].token = tokens[at].second;
    trie.nodes_[node].first_child = static_cast<uint32_t>(spans.size());
    while (at < end) {
      const char label = tokens[at].first[depth];
      size_t next = at;
      while (next < end && tokens[next].first[depth] == label) ++next;
      spans.push_back({at, next, depth + 1});
      trie.nodes_.emplace_back().label = static_cast<unsigned char>(label);
      ++trie.nodes_[node].children;
      at = next;
    }
  }
  return trie;
}

uint32_t PrefixTrie::Walk(uint32_t node, std::string_view text) const {
  for (const char byte : text) {
    node = Child(node, byte);
    if (node == kNone) break;
  }
  return node;
}

}  // namespace pinion
