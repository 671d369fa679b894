#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "engine/base/clock.h"

namespace pinion::harness {

// Shares of a trial's deadline (TrialRequest::deadline_s) by which its waits end: the process would
// be killed at the deadline, and could not say any more which of them took too long. Between two of
// them is time for the next wait; after the last one the server stops.
inline constexpr double kReadyShare = 0.75;       // the server is ready
inline constexpr double kFirstAnswerShare = 0.8;  // its first requests are answered
inline constexpr double kLoadShare = 0.85;        // the load is cut off
inline constexpr double kGeneratorShare = 0.95;   // the generator has reported its result

// The deadline of a trial, counted from the start of its process; none if deadline_s is unset.
struct TrialDeadline {
  int64_t start_ns = 0;
  std::optional<double> deadline_s;

  // Until that share of the deadline; below 0 after it.
  double SecondsUntil(double share) const {
    if (!deadline_s) return std::numeric_limits<double>::infinity();
    return share * *deadline_s - SecondsSince(start_ns);
  }
};

}  // namespace pinion::harness
