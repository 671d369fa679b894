#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "harness/store/store.h"
#include "harness/trial/workload.h"

namespace pinion::harness {

// What came out of one configuration, measured once.
struct TrialResult {
  std::vector<MetricValue> samples;
  std::string output_hash;           // of the offline batch; empty where it was cut
  std::vector<std::string> suspect;  // what disturbed it
  Json info;                         // isa, dtype, threads, ranks, plan, stages, what was cut, ...
  // Why its load did not come far enough in its time, with the way out; then nothing else counts.
  // It may with more time, or when others no longer compute. Empty: it did.
  std::string too_slow;
};

Json ToJson(const TrialResult& result);
Result<TrialResult> ReadTrialResult(const Json& object);

// Starts the engine as asked and loads it: warm-up, the offline batch, then a closed loop at every
// concurrency. `start_ns` is when the process began; the limit counts from there, but the load
// always gets half of it, and as long as the start took; a phase that would not see one request end
// may take another half (2 s at least).
// What is cut off all the same is measured as far as it went (info "cut"); a phase without two
// tokens of one request ends the trial as too slow.
// Where `ceilings` are asked for, what they took is info "once_s": no later trial takes it again.
Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns);

// The same on an engine that is ready.
Result<TrialResult> MeasureTrial(Engine& engine, const TrialRequest& request, int64_t start_ns);

// What was counted around the measured load, as info "counters"; where energy was, a sample
// "joules_per_token".
struct CounterReading;
void AddCounters(const std::vector<CounterReading>& readings, size_t output_tokens,
                 TrialResult& result);

// Peak resident memory of this process so far (VmHWM).
uint64_t PeakRssBytes();

// One load as samples ("ttft_s", "tpot_s", ... at that concurrency), from the requests that ended.
// Where none did, TTFT and the gaps of those that were cut off after their second token; else none.
struct LoadResult;
// "goodput" where there is an SLO.
void AddServingSamples(const LoadResult& load, int concurrency, const Slo& slo,
                       std::vector<MetricValue>& samples);

// What medians do not tell of: the quantiles 0 %, 5 %, ..., 100 % of every request's TTFT and of
// every gap, for info "quantiles": [{"metric","concurrency","n","values"}].
struct ServingSummary;
void AddQuantiles(const ServingSummary& summary, int concurrency, Json& list);

}  // namespace pinion::harness
