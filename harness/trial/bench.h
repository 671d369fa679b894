#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "harness/stats/estimate.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

enum class BenchMode { kLatency, kThroughput, kServing };
const char* Name(BenchMode mode);  // "latency", "throughput", "serving"

// How to measure one configuration.
struct BenchPlan {
  BenchMode mode = BenchMode::kLatency;
  int prompt_len = 512, output_len = 64;  // tokens
  int batch = 1;         // latency: requests sent at once; serving: clients of the closed loop
  int num_prompts = 32;  // throughput: sent at once; serving: sent in all, per round
  int rounds = 6;        // each with prompts of its own; intervals need 6
  uint64_t seed = 1;
  Slo slo;  // serving: what goodput counts
};
Status Validate(const BenchPlan& plan);  // kUsage

// One number per round, summed up.
struct BenchRow {
  std::string metric;  // see Metrics() in harness/stats/metrics.h
  Estimate estimate;
};

struct BenchResult {
  BenchPlan plan;
  EngineInfo engine;
  std::string model;
  Json config;  // EngineOptions
  uint64_t peak_rss_bytes = 0;
  std::vector<BenchRow> rows;  // prefill and decode rates first
  std::vector<std::string> suspect;

  const Estimate* Find(const std::string& metric) const;
};

// One warm-up load, then `rounds` measured ones. `progress` is told after each.
Result<BenchResult> RunBench(Engine& engine, const EngineOptions& options, const BenchPlan& plan,
                             const std::function<void(int round)>& progress);

// {"prefill_tokens_per_s":{"median","low","high"},"decode_tokens_per_s":{...},"load_s",
//  "peak_rss_bytes","isa","threads","config":{},...}; low and high are null below 6 rounds.
Json ToJson(const BenchResult& result);

// The same for a person: a table, and the formula of every line of it.
std::string Render(const BenchResult& result);

}  // namespace pinion::harness
