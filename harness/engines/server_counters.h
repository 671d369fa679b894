#pragma once

#include <optional>
#include <string>

#include "harness/load/server_url.h"

namespace pinion::harness {

// The steps of one kind, as `pinion serve` counts them (pinion:step_..._total).
struct StepCounters {
  double seconds = 0, tokens = 0, bytes = 0, operations = 0;
  bool operator==(const StepCounters&) const = default;
};

// Counters of a server since its start, by the names that vLLM and `pinion serve` use
// on /metrics.
struct ServerCounters {
  double preemptions = 0, prefix_query_tokens = 0, prefix_hit_tokens = 0;
  StepCounters prefill, decode;  // 0: the server does not count them
  double kv_used_share = 0;      // now; of several engines behind it the highest

  // Counts since `before`; the share is this one's.
  ServerCounters operator-(const ServerCounters& before) const;
  bool operator==(const ServerCounters&) const = default;
};

// Parses Prometheus text; sums every counter over its labels, such as those of engines behind one
// server. nullopt if one that vLLM
// has is missing.
std::optional<ServerCounters> ReadCounters(const std::string& metrics);

// Those of a running server; nullopt if it has no such page or lacks a counter.
std::optional<ServerCounters> CountersOf(const ServerUrl& server);

}  // namespace pinion::harness
