#pragma once

#include <compare>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// The load under which something was measured: a closed loop of so many clients, or an open loop at
// so many requests/s. Neither: the offline batch, or the process as a whole.
struct LoadLevel {
  int clients = 0;  // each sends its next request when the last one is answered
  double rate = 0;  // requests/s, at random times whether or not any is answered

  constexpr LoadLevel(int of_clients = 0, double requests_per_s = 0)
      : clients(of_clients), rate(requests_per_s) {}
  static constexpr LoadLevel AtRate(double requests_per_s) { return {0, requests_per_s}; }

  constexpr bool is_open() const { return rate > 0; }
  constexpr bool any() const { return clients > 0 || rate > 0; }
  auto operator<=>(const LoadLevel&) const = default;
};

// Limits of a level.
inline constexpr int kMaxClients = 4096;
inline constexpr double kLeastRate = 0.001, kMaxRate = 10'000;

std::string LevelText(LoadLevel level);  // "8 clients", "2.5 requests/s"; empty for neither
std::string LevelKey(LoadLevel level);   // "8", "2.5rps"

// By its key; kUsage with the allowed ones.
Result<LoadLevel> ParseLoadLevel(const std::string& text);

// The keys "concurrency" and, of an open loop, "rate" of an object.
void SetLevel(LoadLevel level, Json& object);
Result<LoadLevel> LevelOf(const Json& object);

}  // namespace pinion::harness
