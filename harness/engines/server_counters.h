#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/load/http_client.h"

namespace pinion::harness {

// What servers have counted since they started, by the names that vLLM and our own `serve` give it
// on /metrics.
struct ServerCounters {
  double preemptions = 0, prefix_query_tokens = 0, prefix_hit_tokens = 0;

  ServerCounters operator-(const ServerCounters& before) const;
  bool operator==(const ServerCounters&) const = default;
};

// Of one server's Prometheus text: every counter summed over its labels. nullopt where one of them
// is not there.
std::optional<ServerCounters> ReadCounters(const std::string& metrics);

// The sum over all servers; nullopt where one of them does not count so.
std::optional<ServerCounters> CountersOf(const std::vector<ServerUrl>& servers);

}  // namespace pinion::harness
