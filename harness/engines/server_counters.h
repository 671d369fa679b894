#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/load/server_url.h"

namespace pinion::harness {

// Counters of servers since their start, by the names that vLLM and `pinion serve` use
// on /metrics.
struct ServerCounters {
  double preemptions = 0, prefix_query_tokens = 0, prefix_hit_tokens = 0;

  ServerCounters operator-(const ServerCounters& before) const;
  bool operator==(const ServerCounters&) const = default;
};

// Parses one server's Prometheus text; sums every counter over its labels. nullopt if one of them
// is missing.
std::optional<ServerCounters> ReadCounters(const std::string& metrics);

// The sum over all servers; nullopt if one of them lacks a counter.
std::optional<ServerCounters> CountersOf(const std::vector<ServerUrl>& servers);

}  // namespace pinion::harness
