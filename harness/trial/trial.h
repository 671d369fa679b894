#pragma once

#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "harness/store/store.h"
#include "harness/trial/workload.h"

namespace pinion::harness {

// The result of measuring one configuration once.
struct TrialResult {
  std::vector<MetricValue> samples;
  std::string output_hash;           // of the offline batch; empty if it was cut
  std::vector<std::string> suspect;  // disturbances
  Json info;                         // isa, dtype, threads, ranks, plan, stages, what was cut, ...
  // Why the load did not get far enough in its time, with the way out; the other fields are then
  // meaningless. More time or an idle machine may help. Empty: it did get far enough.
  std::string too_slow;
};

Json ToJson(const TrialResult& result);
Result<TrialResult> ReadTrialResult(const Json& object);

// Starts the engine with the request's options and loads it: warm-up, offline batch, closed loop at
// every concurrency. `start_ns` is when the process began; the limit counts from there, but the
// load always gets half of it, and as long as the start took; a phase that would not see one
// request end may take another half (2 s at least). A phase that is cut off is measured as far as
// it went (info "cut"); a phase without two tokens of one request ends the trial as too slow. The
// time of requested `ceilings` is info "once_s", which no later trial needs again.
Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns);

// The same on an engine that is ready; all times are those of `clock`.
Result<TrialResult> MeasureTrial(Engine& engine, const TrialRequest& request, int64_t start_ns,
                                 const Clock& clock = kMachineClock);

// Stores the hardware counters of the measured load as info "counters", and those that metrics
// exist for as samples; with energy, also "joules_per_token".
struct CounterReading;
void AddCounters(const std::vector<CounterReading>& readings, size_t output_tokens,
                 TrialResult& result);

// Peak resident memory of this process so far (VmHWM).
uint64_t PeakRssBytes();

// One load as samples ("ttft_s", "tpot_s", ... at that concurrency), from the complete requests.
// If there are none, TTFT and gaps of those that were cut off after their second token.
struct LoadResult;
// "goodput" if there is an SLO.
void AddServingSamples(const LoadResult& load, int concurrency, const Slo& slo,
                       std::vector<MetricValue>& samples);

// The distribution behind the medians: the quantiles 0 %, 5 %, ..., 100 % of every request's TTFT
// and of every gap, for info "quantiles": [{"metric","concurrency","n","values"}].
struct ServingSummary;
void AddQuantiles(const ServingSummary& summary, int concurrency, Json& list);

}  // namespace pinion::harness
