#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/load/generator.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

// A load with its report.
struct LoadReport {
  LoadedServer server;
  LoadPlan plan;
  Slo slo{};
  ServerLoadResult result{};
  std::vector<std::string> suspect{};  // disturbances from outside
  // Of all packages, from the first request to the last answer; or why it cannot be read.
  Result<double> joules = Fail(ErrorCode::kUnsupported, "not measured");
};

// The complete requests as traces; in an open loop their times count from when they were due.
std::vector<RequestTrace> TracesOf(const ServerLoadResult& result);

// How often the generator was late, from 0 to 1: by more than 1 % of the median TTFT and more than
// 1 ms. The share of its requests if each had a scheduled time; in a closed loop,
// whose requests wait for each other, of the ticks of its own clock.
double LateShare(const ServerLoadResult& result);

// Why the generator itself may have spoilt the measurement, one phrase each; empty if it did not.
// Late is a p95 behind schedule of more than 1 % of the median TTFT, and of more than 1 ms.
std::vector<std::string> GeneratorFaults(const ServerLoadResult& result);

// The keys of `vllm bench serve --save-result` ("request_throughput", "mean_ttft_ms", ...), and
// under "pinion" further keys: workload, schedule, the generator's own load, formulas. Percentiles
// that the sample does not support are null. `detailed` adds every request.
Json ToJson(const LoadReport& report, bool detailed);

// The same as text.
std::string Render(const LoadReport& report);

// The formula of every number.
const std::vector<std::pair<std::string, std::string>>& LoadFormulas();

}  // namespace pinion::harness
