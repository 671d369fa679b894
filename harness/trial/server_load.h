#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/counters/conditions.h"
#include "harness/load/arrivals.h"
#include "harness/load/conversations.h"
#include "harness/load/generator.h"
#include "harness/load/slo_report.h"
#include "harness/load/summary.h"

namespace pinion::harness {

// A load for a server, as requested by the user.
struct ServerLoad {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;  // empty: the first that the server lists
  HttpAccess access;
  WorkloadShape shape;
  std::string dataset, trace;     // files instead of the shape's made-up text
  std::optional<Lengths> output;  // with a dataset: in place of its answers' lengths
  size_t num_prompts = 100;       // conversations
  std::optional<double> rate;     // open loop, conversations/s; a trace has its own times
  double burstiness = 1;
  std::optional<Ramp> ramp;
  int max_concurrency = 0;           // closed loop: clients; open loop: most at a time, 0: no limit
  std::optional<double> duration_s;  // no request is sent after it
  double timeout_s = 600;
  bool ignore_eos = true;
  double temperature = 0;
  Json extra_body;
  uint64_t seed = 1;
  Slo slo;
  std::vector<int> cpus;  // of the generator

  bool open_loop() const { return rate || ramp || !trace.empty(); }
};
// Checks the values and that no two fields exclude each other; kUsage.
Status Validate(const ServerLoad& load);

// A load that is ready to be sent, any number of times.
struct PreparedLoad {
  ServerUrl url;
  ServerLoad load;
  TokenScale scale;
  int longest = 0;  // most tokens of a prompt and its answer; 0: unknown
  std::vector<Conversation> conversations;
  std::vector<double> trace_s;       // arrivals of a trace
  std::string workload;              // in words
  std::optional<double> deadline_s;  // requests that still run then are cut off
};

// Reads the files; asks the server for its model and measures how it counts made-up text.
Result<PreparedLoad> PrepareLoad(const ServerUrl& url, const ServerLoad& load,
                                 const LoadHooks& hooks);

// The machine's counters now. A server on this machine is what the load measures, so the processes
// that listen on its port count as own with their descendants; unknown if they cannot be told.
Conditions ConditionsUnderLoad(const ServerUrl& url);

// Sends the load once and returns the report.
Result<LoadReport> SendLoad(const PreparedLoad& prepared, const LoadHooks& hooks);

// Finds the highest concurrency (options.whole) or rate at which enough requests meet the load's
// SLO, by sending it repeatedly with different seeds. `told` is called after every run. Errors
// (kUsage): no SLO, a trace or a ramp, which have rates of their own.
Result<SloReport> FindLoadBoundary(
    PreparedLoad prepared, const SloSearchOptions& options, const LoadHooks& hooks,
    const std::function<void(double load, const LevelRun& run)>& told);

}  // namespace pinion::harness
