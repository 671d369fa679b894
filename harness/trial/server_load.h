#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/arrivals.h"
#include "harness/load/conversations.h"
#include "harness/load/generator.h"
#include "harness/load/slo_report.h"
#include "harness/load/summary.h"

namespace pinion::harness {

// What to load a server with, as a person asks for it.
struct ServerLoad {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;    // unset: the first that the server lists
  std::string api_key;  // bearer token
  WorkloadShape shape;
  std::string dataset, trace;     // files instead of the shape's made-up text
  std::optional<Lengths> output;  // with a dataset: instead of its answers' lengths
  size_t num_prompts = 100;       // conversations
  std::optional<double> rate;     // open loop, conversations/s; a trace has times of its own
  double burstiness = 1;
  std::optional<Ramp> ramp;
  int max_concurrency = 0;  // closed loop: clients; open loop: the most at a time, 0 no limit
  std::optional<double> duration_s;  // nothing is sent after it
  double timeout_s = 600;
  bool ignore_eos = true;
  double temperature = 0;
  Json extra_body;
  uint64_t seed = 1;
  Slo slo;
  std::vector<int> cpus;  // of the generator

  bool open_loop() const { return rate || ramp || !trace.empty(); }
};
// Which of them exclude each other; kUsage.
Status Validate(const ServerLoad& load);

// A load that is ready to be sent, any number of times.
struct PreparedLoad {
  ServerUrl url;
  ServerLoad load;
  TokenScale scale;
  int longest = 0;  // tokens of a prompt and its answer; 0: the server does not say
  std::vector<Conversation> conversations;
  std::vector<double> trace_s;       // arrivals of a trace
  std::string workload;              // in words
  std::optional<double> deadline_s;  // what still runs then is cut off
};

struct LoadHooks {
  std::function<void(size_t completed, size_t failed, double elapsed_s)> progress;
  std::function<bool()> interrupted = [] { return false; };
};

// Reads the files, asks the server for its model and for how it counts made-up text.
Result<PreparedLoad> PrepareLoad(const ServerUrl& url, const ServerLoad& load,
                                 const LoadHooks& hooks);

// Sends it once and says what came out.
Result<LoadReport> SendLoad(const PreparedLoad& prepared, const LoadHooks& hooks);

// Finds the highest concurrency (options.whole) or rate at which enough requests meet the load's
// SLO, by sending it again and again with seeds of its own. `told` hears of every run. Errors
// (kUsage): no SLO, a trace or a ramp, which have rates of their own.
Result<SloReport> FindLoadBoundary(
    PreparedLoad prepared, const SloSearchOptions& options, const LoadHooks& hooks,
    const std::function<void(double load, const LevelRun& run)>& told);

}  // namespace pinion::harness
