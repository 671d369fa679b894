#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// A set of tokens, walked byte by byte: which of them does a text begin with? Immutable;
// thread-safe.
class PrefixTrie {
 public:
  // Longer tokens are refused: a walk takes as many steps as the longest token has bytes, at every
  // position of a text. The longest published ones have about 100.
  static constexpr size_t kMaxTokenBytes = 1024;
  static constexpr uint32_t kRoot = 0, kNone = 0;

  // {token, id}; of equal tokens the later one counts, empty ones are left out.
  static Result<PrefixTrie> Make(std::vector<std::pair<std::string_view, int32_t>> tokens);

  // The node behind `byte`; kNone if no token goes on like that.
  uint32_t Child(uint32_t node, char byte) const {
    const Node& of = nodes_[node];
    const auto label = static_cast<unsigned char>(byte);
    uint32_t low = of.first_child, high = low + of.children;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (nodes_[middle].label == label) return middle;
      nodes_[middle].label < label ? low = middle + 1 : high = middle;
    }
    return kNone;
  }
  // The node behind all of `text`; kNone if no token begins with it (or it is empty).
  uint32_t Walk(uint32_t node, std::string_view text) const;
  // The token that ends at a node; -1: none does.
  int32_t Token(uint32_t node) const { return nodes_[node].token; }

 private:
  struct Node {
    uint32_t first_child = 0;  // the children lie together, by label
    uint16_t children = 0;
    unsigned char label = 0;
    int32_t token = -1;
  };
  std::vector<Node> nodes_{1};
};

}  // namespace pinion
