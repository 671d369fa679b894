#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <limits>

namespace pinion {

// The tokens of its sequence that a token sees: those from First() to itself, or to one after it.
struct Reach {
  static constexpr int kWholeSequence = std::numeric_limits<int>::max();

  int window = 0;  // so many, up to the last one that it sees; 0: no limit
  int chunk = 0;   // those from the last multiple of chunk on; 0: no limit
  int chosen = 0;  // of them, so many that an indexer chooses (IndexSpec); 0: all
  int ahead = 0;   // the last one is so many after it; 0: itself; kWholeSequence: the sequence's

  // Whether there are tokens before it that it does not see, in a long enough sequence.
  bool limited() const { return window > 0 || chunk > 0; }
  // The first that a token sees whose last one is at `position`, which is its own if ahead is 0.
  size_t First(size_t position) const {
    size_t first = 0;
    if (const auto size = static_cast<size_t>(window); size > 0 && position + 1 > size)
      first = position + 1 - size;
    if (const auto size = static_cast<size_t>(chunk); size > 0)
      first = std::max(first, position / size * size);
    return first;
  }
  // The most that a token sees of `tokens` up to its last one.
  size_t Most(size_t tokens) const {
    for (const int limit : {window, chunk})
      if (limit > 0) tokens = std::min(tokens, static_cast<size_t>(limit));
    return tokens;
  }
  // Whether the token at `position` sees fewer than there are, by an indexer's choice.
  bool Chooses(size_t position) const {
    return chosen > 0 && position - First(position) >= static_cast<size_t>(chosen);
  }
  bool operator==(const Reach&) const = default;
  auto operator<=>(const Reach&) const = default;
};

}  // namespace pinion
