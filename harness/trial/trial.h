#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/settings.h"
#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The request to a trial's process: how to start the server, and its load.
struct TrialRequest {
  EngineChoice engine;
  Configuration configuration;  // its libraries are those of the trial's process already
  std::string log;  // the file that the process writes its standard error to; "": unknown
  Workload workload;
  // Of the offline batch, if the machine is too slow for the workload's number.
  std::optional<int> batch_prompts;
  uint64_t seed = 1;    // of the prompts; the same for every candidate of a round
  double limit_s = 60;  // from the process's start; the load is cut to end by then
  // From the process's start, too: the end of all but the ceilings, however slow the start was. The
  // process is killed if it goes on. Unset: none.
  std::optional<double> deadline_s;
  bool ceilings = false;  // measure the machine's ceilings after the load
};

Json ToJson(const TrialRequest& request);
Result<TrialRequest> ReadTrialRequest(const Json& object);

// The result of measuring one configuration once.
struct TrialResult {
  std::vector<MetricValue> samples;
  std::vector<RequestRow> requests;  // of all loads but the warm-ups
  std::vector<std::string> suspect;  // disturbances
  TrialInfo info;
  // Why the load did not get far enough in its time, with the way out; the other fields are then
  // meaningless. More time or an idle machine may help. Empty: it did get far enough.
  std::string too_slow;
};

Json ToJson(const TrialResult& result);
Result<TrialResult> ReadTrialResult(const Json& object);

// Two configurations in turns: both servers run, and while one has a short load, a wave, the other
// has none. A disturbance longer than a wave slows both alike, unlike trials one after the other.
struct PairRequest {
  // The first one's server starts first. A side's limit is that of a wave, its deadline the whole
  // trial's, and its ceilings are not measured.
  std::array<TrialRequest, 2> sides;
  int waves = 1;  // of each side
};

Json ToJson(const PairRequest& request);
Result<PairRequest> ReadPairRequest(const Json& object);  // an object with "sides"

// Each side's result, or why it has none; the other side is measured all the same.
using PairResult = std::array<Result<TrialResult>, 2>;
Json ToJson(const PairResult& result);  // {"sides": [result | {"error": "..."}]}
Result<PairResult> ReadPairResult(const Json& object);

// Starts the server that `launch` would start, on a free port of 127.0.0.1, waits until it is
// healthy, loads it from a generator in a process of its own, and stops it. The trial fails if the
// server ends: its error is the last one in the log. The generator runs on the CPUs that neither
// ranks nor front end use, if there are any.
// Sample "generator_cpu_share" and the info's generator are of its worst phase: how busy it was
// itself, and how often it was late (LateShare in harness/load/summary.h).
//
// `start_ns` is when the process began; the limit counts from there, but the load always gets at
// least half of it, and at least as long as the start took; a phase that would not see one request
// end, and an offline batch, may take another half (2 s at least). Each wait ends at a share of the
// request's deadline (harness/trial/trial_deadline.h), with a sentence of its own. A phase that is
// cut off is measured as far as it went (info "cut"). A phase without an answer ends the trial as
// too slow, and so does a server of Pinion's that is not ready by its share. The time of requested
// `ceilings` is info "once_s", which no later trial needs again. `interrupted` is asked while it
// runs.
Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns,
                             const std::function<bool()>& interrupted);

// The same for two configurations in turns. The second one's server writes to its request's `log`,
// the first one's to standard error. A side's samples are the means of its waves, its hardware
// counters those of its first one. Errors: a log cannot be written.
Result<PairResult> RunPair(const PairRequest& request, int64_t start_ns,
                           const std::function<bool()>& interrupted);

}  // namespace pinion::harness
