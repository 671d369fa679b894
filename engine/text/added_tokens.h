#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// A token that is recognised in the text itself, before it is split or merged.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only if no word character is next to it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // looked for in normalised text
  bool special = false;      // left out when decoding without special tokens

  static Result<AddedToken> Read(const Json& entry);
};

// Finds a set of added tokens in text: leftmost first, and of those the longest. Immutable;
// thread-safe.
class AddedTokenMatcher {
 public:
  // A stretch of the text: a token, or (id unset) the text between tokens.
  struct Section {
    std::optional<int32_t> id;
    size_t begin, end;
  };

  // `content`: the text to look for; for normalised tokens it differs from the file's.
  void Add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }
  std::vector<Section> Split(std::string_view text) const;

 private:
  struct Match {
    size_t length = 0;
    const AddedToken* token = nullptr;
  };
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> children;
    int32_t token = -1;
  };
  uint32_t Child(uint32_t node, unsigned char byte) const;  // 0: none
  Match LongestAt(std::string_view rest) const;

  std::vector<Node> nodes_{1};
  std::vector<AddedToken> tokens_;
};

}  // namespace pinion
