#include "harness/engines/server_counters.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/strings.h"
#include "harness/load/http_client.h"

namespace pinion::harness {
namespace {

struct Counter {
  const char* name;
  const char* label;  // that the line must have; "": any
  bool is_vllms;      // every server must have it
  double& (*of)(ServerCounters& counters);
};

constexpr char kPrefill[] = "kind=\"prefill\"", kDecode[] = "kind=\"decode\"";

const Counter kCounters[] = {
    {"vllm:num_preemptions_total", "", true,
     [](ServerCounters& c) -> double& { return c.preemptions; }},
    {"vllm:prefix_cache_queries_total", "", true,
     [](ServerCounters& c) -> double& { return c.prefix_query_tokens; }},
    {"vllm:prefix_cache_hits_total", "", true,
     [](ServerCounters& c) -> double& { return c.prefix_hit_tokens; }},
    {"pinion:step_seconds_total", kPrefill, false,
     [](ServerCounters& c) -> double& { return c.prefill.seconds; }},
    {"pinion:step_tokens_total", kPrefill, false,
     [](ServerCounters& c) -> double& { return c.prefill.tokens; }},
    {"pinion:step_bytes_total", kPrefill, false,
     [](ServerCounters& c) -> double& { return c.prefill.bytes; }},
    {"pinion:step_operations_total", kPrefill, false,
     [](ServerCounters& c) -> double& { return c.prefill.operations; }},
    {"pinion:step_seconds_total", kDecode, false,
     [](ServerCounters& c) -> double& { return c.decode.seconds; }},
    {"pinion:step_tokens_total", kDecode, false,
     [](ServerCounters& c) -> double& { return c.decode.tokens; }},
    {"pinion:step_bytes_total", kDecode, false,
     [](ServerCounters& c) -> double& { return c.decode.bytes; }},
    {"pinion:step_operations_total", kDecode, false,
     [](ServerCounters& c) -> double& { return c.decode.operations; }},
};
constexpr char kKvUsage[] = "vllm:kv_cache_usage_perc";

// "name 3" or "name{label="x y"} 3"; a time may follow the value.
std::optional<double> ValueOf(const std::string& line, const std::string& name,
                              const std::string& label = "") {
  if (!line.starts_with(name) || line.size() == name.size()) return std::nullopt;
  size_t at = name.size();
  if (line[at] == '{') at = line.rfind('}') + 1;  // 0 if it is not closed
  if (at == 0 || at >= line.size() || line[at] != ' ') return std::nullopt;
  if (line.substr(0, at).find(label) == std::string::npos) return std::nullopt;
  return std::strtod(line.c_str() + at, nullptr);
}

}  // namespace

ServerCounters ServerCounters::operator-(const ServerCounters& before) const {
  ServerCounters difference = *this, other = before;
  for (const Counter& counter : kCounters) counter.of(difference) -= counter.of(other);
  return difference;
}

std::optional<ServerCounters> ReadCounters(const std::string& metrics) {
  ServerCounters counters;
  const std::vector<std::string> lines = Split(metrics, '\n');
  for (const Counter& counter : kCounters) {
    bool found = false;
    for (const std::string& line : lines) {
      const auto value = ValueOf(line, counter.name, counter.label);
      if (!value) continue;
      counter.of(counters) += *value;
      found = true;
    }
    if (!found && counter.is_vllms) return std::nullopt;
  }
  for (const std::string& line : lines)
    if (const auto value = ValueOf(line, kKvUsage))
      counters.kv_used_share = std::max(counters.kv_used_share, *value);
  return counters;
}

std::optional<ServerCounters> CountersOf(const ServerUrl& server) {
  constexpr double kPatienceSeconds = 5;
  const auto text = HttpFetch(server, "/metrics", kPatienceSeconds);
  return text ? ReadCounters(*text) : std::nullopt;
}

}  // namespace pinion::harness
