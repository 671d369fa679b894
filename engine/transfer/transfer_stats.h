#pragma once

#include <cstdint>

namespace pinion {

// Counts of prompts that an engine hands to others, or takes from them.
struct TransferStats {
  uint64_t orders = 0;  // prompts that another engine was to compute, or was asked to
  uint64_t failed = 0;  // of them, those that were not handed over as a whole
  uint64_t given_tokens = 0, taken_tokens = 0;  // whose keys and values were handed over
  uint64_t bytes = 0;                           // of them, and of states

  TransferStats& operator+=(const TransferStats& more) {
    orders += more.orders;
    failed += more.failed;
    given_tokens += more.given_tokens;
    taken_tokens += more.taken_tokens;
    bytes += more.bytes;
    return *this;
  }
};

}  // namespace pinion
