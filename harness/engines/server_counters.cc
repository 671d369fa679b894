#include "harness/engines/server_counters.h"

#include <cstdlib>

#include "engine/base/strings.h"
#include "harness/load/http_client.h"

namespace pinion::harness {
namespace {

struct Counter {
  const char* name;
  double ServerCounters::*member;
};
constexpr Counter kCounters[] = {
    {"vllm:num_preemptions_total", &ServerCounters::preemptions},
    {"vllm:prefix_cache_queries_total", &ServerCounters::prefix_query_tokens},
    {"vllm:prefix_cache_hits_total", &ServerCounters::prefix_hit_tokens},
};

// "name 3" or "name{label="x y"} 3"; a time may follow the value.
std::optional<double> ValueOf(const std::string& line, const std::string& name) {
  if (!line.starts_with(name) || line.size() == name.size()) return std::nullopt;
  size_t at = name.size();
  if (line[at] == '{') at = line.rfind('}') + 1;  // 0 if it is not closed
  if (at == 0 || at >= line.size() || line[at] != ' ') return std::nullopt;
  return std::strtod(line.c_str() + at, nullptr);
}

}  // namespace

ServerCounters ServerCounters::operator-(const ServerCounters& before) const {
  ServerCounters difference = *this;
  for (const Counter& counter : kCounters) difference.*counter.member -= before.*counter.member;
  return difference;
}

std::optional<ServerCounters> ReadCounters(const std::string& metrics) {
  ServerCounters counters;
  const std::vector<std::string> lines = Split(metrics, '\n');
  for (const Counter& counter : kCounters) {
    bool found = false;
    for (const std::string& line : lines) {
      const auto value = ValueOf(line, counter.name);
      if (!value) continue;
      counters.*counter.member += *value;
      found = true;
    }
    if (!found) return std::nullopt;
  }
  return counters;
}

std::optional<ServerCounters> CountersOf(const std::vector<ServerUrl>& servers) {
  constexpr double kPatienceSeconds = 5;
  ServerCounters sum;
  for (const ServerUrl& url : servers) {
    const auto text = HttpFetch(url, "/metrics", kPatienceSeconds);
    const auto counters = text ? ReadCounters(*text) : std::nullopt;
    if (!counters) return std::nullopt;
    for (const Counter& counter : kCounters) sum.*counter.member += *counters.*counter.member;
  }
  return sum;
}

}  // namespace pinion::harness
