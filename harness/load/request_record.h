#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace pinion::harness {

// One request as its client saw it; times of CLOCK_MONOTONIC, the tokens' whole microseconds after
// sent_ns.
struct RequestRecord {
  size_t conversation = 0, turn = 0;
  // When it was due: its arrival in an open loop; in a closed loop, and for later turns, when the
  // answer before it had ended.
  int64_t scheduled_ns = 0;
  int64_t sent_ns = 0;
  // Arrival of every event that carries part of the answer, ascending; the first is the first
  // token's.
  std::vector<int64_t> token_ns;
  int64_t ended_ns = 0;
  int output_len = 0;                                              // requested
  std::optional<int> prompt_tokens, output_tokens, cached_tokens;  // as the server counted
  int status = 0;                                                  // of HTTP; 0: no answer came
  std::string error;                                               // empty: complete
  bool cut = false;  // by the deadline; `error` says so

  bool operator==(const RequestRecord&) const = default;
  bool complete() const { return error.empty(); }
  // As the server counted, else the events.
  size_t tokens() const {
    return output_tokens ? static_cast<size_t>(*output_tokens) : token_ns.size();
  }
};

// Ascending times as a blob: LEB128 numbers of whole microseconds, the first since `origin_ns` (a
// record's sent_ns), each next since the one before. A gap below 16.4 ms takes 2 bytes, one below
// 2.1 s takes 3: a million tokens are 2 to 3 MB.
std::string PackTimes(std::span<const int64_t> times_ns, int64_t origin_ns);

// The times again, exactly those of whole microseconds after `origin_ns`; of others, the rest is
// lost, and does not add up. Errors (kFailed): a blob that ends within a number, or times beyond 63
// bits.
Result<std::vector<int64_t>> UnpackTimes(std::string_view packed, int64_t origin_ns);

}  // namespace pinion::harness
