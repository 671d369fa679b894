#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// Tokens and their ids, both ways. Filled once, then thread-safe.
class Vocabulary {
 public:
  // Larger ids are absurd: the largest real vocabularies have 262,144.
  static constexpr int64_t kMaxId = (1 << 22) - 1;
  // So are longer texts: the longest real ones are runs of some hundred spaces or dashes. Each
  // sampled token may add one such text to the answer.
  static constexpr size_t kMaxTokenBytes = 16 << 10;

  // Every token has one id and every id one text: of conflicting entries the later one wins.
  Status Add(std::string_view token, int64_t id);

  std::optional<int32_t> Find(std::string_view token) const {
    const auto it = ids_.find(token);
    if (it == ids_.end()) return std::nullopt;
    return it->second;
  }
  // "" if no token has the id.
  const std::string& Text(int32_t id) const;
  bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < known_.size() && known_[static_cast<size_t>(id)];
  }
  size_t count() const { return ids_.size(); }
  size_t end_id() const { return texts_.size(); }  // highest id + 1

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> texts_;
  std::vector<bool> known_;
};

}  // namespace pinion
