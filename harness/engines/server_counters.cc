#include "harness/engines/server_counters.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "engine/base/strings.h"
#include "harness/load/http_client.h"

namespace pinion::harness {
namespace {

struct Counter {
  std::string name, label;  // of a line; "": any label
  double* value;
};

std::vector<Counter> CountersIn(ServerCounters& all) {
  std::vector<Counter> counters = {
      {"vllm:num_preemptions_total", "", &all.preemptions},
      {"vllm:prefix_cache_queries_total", "", &all.prefix_query_tokens},
      {"vllm:prefix_cache_hits_total", "", &all.prefix_hit_tokens}};
  for (StepCounters* steps : {&all.prefill, &all.decode}) {
    const char* label = steps == &all.prefill ? "kind=\"prefill\"" : "kind=\"decode\"";
    counters.push_back({"pinion:step_seconds_total", label, &steps->seconds});
    counters.push_back({"pinion:step_tokens_total", label, &steps->tokens});
    counters.push_back({"pinion:step_bytes_total", label, &steps->bytes});
    counters.push_back({"pinion:step_operations_total", label, &steps->operations});
  }
  return counters;
}

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
  const std::vector<Counter> since = CountersIn(other);
  for (size_t i = 0; const Counter& counter : CountersIn(difference))
    *counter.value -= *since[i++].value;
  return difference;
}

std::optional<ServerCounters> ReadCounters(const std::string& metrics) {
  ServerCounters counters;
  const std::vector<std::string> lines = Split(metrics, '\n');
  for (const Counter& counter : CountersIn(counters)) {
    bool found = false;
    for (const std::string& line : lines) {
      const auto value = ValueOf(line, counter.name, counter.label);
      if (!value) continue;
      *counter.value += *value;
      found = true;
    }
    if (!found && counter.name.starts_with("vllm:")) return std::nullopt;  // every server has it
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
