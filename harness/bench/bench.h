#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/decoder/cost.h"
#include "engine/run/engine.h"
#include "engine/run/spread_step.h"
#include "harness/counters/counters.h"
#include "harness/probe/ceilings.h"
#include "harness/stats/estimate.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

enum class BenchMode { kLatency, kThroughput, kServing };
const char* Name(BenchMode mode);  // "latency", "throughput", "serving"

// How to measure one configuration.
struct BenchPlan {
  BenchMode mode = BenchMode::kLatency;
  int prompt_len = 512, output_len = 64;  // tokens
  int shared_prefix = 0;                  // tokens that all prompts of a round begin with
  int batch = 1;         // latency: requests sent at once; serving: clients of the closed loop
  int num_prompts = 32;  // throughput: sent at once; serving: sent in total, per round
  int rounds = 6;        // each with its own prompts; intervals need 6
  uint64_t seed = 1;
  Slo slo;                              // serving: the limits that goodput counts
  const Clock* clock = &kMachineClock;  // of all times in the result
};
Status Validate(const BenchPlan& plan);  // kUsage

// Shortens the plan's prompts so that prompt and answer together fit the engine's longest sequence.
// For a model that embeds or scores, the prompt alone must fit. kUsage if the answer alone does not
// leave room for a prompt.
Status FitPrompt(const EngineInfo& engine, BenchPlan& plan);

// One number per round, summed up.
struct BenchRow {
  std::string metric;  // see Metrics() in harness/stats/metrics.h
  Estimate estimate;
  // If the metric has a limit: the best value that the machine allows, and the fraction reached (1:
  // the limit), both per round against the limit measured beside it.
  std::optional<Estimate> limit, fraction_of_limit;
};

// The machine's limits during the measurement, and the work of the load.
struct BenchLimits {
  Estimate read_bytes_per_s;  // measured between the decode steps and the rounds
  Estimate flops_per_s;       // measured between the rounds
  Estimate int8_ops_per_s;    // the same; 0 if nothing is multiplied in integers
  StepCost prefill, decode;   // of one round's steps
  // Which of the two takes longer, by the medians above.
  bool prefill_bound_by_bytes = false, decode_bound_by_bytes = false;
};

struct BenchResult {
  BenchPlan plan;
  EngineInfo engine;
  std::string model;
  Json config;  // EngineOptions
  uint64_t peak_rss_bytes = 0;
  std::vector<BenchRow> rows;  // prefill and decode rates first
  std::optional<BenchLimits> limits;
  std::string no_limits_because;  // the reason if there are none
  // Of each rank of this process: the share of the steps' time for which its threads waited for
  // each other and for other ranks. Medians over the rounds.
  std::vector<double> wait_shares;
  // With the processes that compute the model with this one, in one round: medians over the rounds.
  // Unset if it is alone.
  std::optional<Traffic> traffic;
  // The mean step of all rounds beside its prediction; unset if this process is alone, or if the
  // processes have stages of layers, which wait for each other's work.
  std::optional<SpreadStep> prefill_step, decode_step;
  std::vector<CounterReading> counters;  // medians over the rounds, of one round each
  std::vector<std::string> suspect;
};

// One warm-up load, then `rounds` measured ones. After each, `progress` gets the result so far:
// its plan has as many rounds as it holds. `ceilings`, if given, is measured before, between and
// after the rounds, its memory's rate also between steps; neither its time nor its memory counts.
Result<BenchResult> RunBench(Engine& engine, const EngineOptions& options, const BenchPlan& plan,
                             const std::function<void(const BenchResult& so_far)>& progress,
                             CeilingProbe* ceilings = nullptr);

// {"prefill_tokens_per_s":{"median","low","high"},"decode_tokens_per_s":{...},"load_s",
//  "peak_rss_bytes","isa","threads","config":{},...}; low and high are null below 6 rounds.
// "wait_shares": of each rank, 0 to 1.
// "exchange": {"calls","delays","bytes","seconds","link_seconds","link":{"call_s","bytes_per_s"}}
// of a round, with "prefill_step" and "decode_step" as SpreadStep's JSON, or null. "counters": as
// ToJson of them, harness/counters/counters.h, medians of a round. "limits":
// {"read_bytes_per_s":{},"flops_per_s":{},"int8_ops_per_s":{},
//  "prefill":{"bound_by","weight_bytes","kv_bytes","flops","int8_ops"},"decode":{...},
//  "metrics":{"decode_tokens_per_s":{"limit":{},"fraction":{}},...}}, or null; then
// "no_limits_because" says why.
Json ToJson(const BenchResult& result);

// The same as text: a table, and the formula of every line of it.
std::string Render(const BenchResult& result);

}  // namespace pinion::harness
