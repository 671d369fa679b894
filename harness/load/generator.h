#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/http_client.h"
#include "harness/load/openai.h"
#include "harness/load/plan.h"
#include "harness/load/request_record.h"

namespace pinion::harness {

// A server as a load's clients know it.
struct LoadedServer {
  ServerUrl url;
  HttpAccess access{};
  RequestStyle style{};
  double timeout_s = 600;  // of one request
  TokenScale scale{};      // how it counts made-up text
  // Most tokens of a prompt and its answer (max_model_len): a conversation ends before a turn that
  // would exceed it, by the server's counts so far. 0: unknown.
  int longest = 0;
};

// CPUs of a load, and calls to its user meanwhile.
struct LoadHooks {
  std::function<void(size_t completed, size_t failed, double elapsed_s)>
      progress{};                                            // twice a second
  std::function<bool()> interrupted = [] { return false; };  // asked 20 times a second
  std::vector<int> cpus{};                                   // of the generator; empty: unchanged
  std::function<void()> begins{};                            // all texts are made: now it is sent
};

// The generator's own load and delays, which affect the measurement.
struct GeneratorLoad {
  double cpu_s = 0;            // of its thread
  double cpu_share = 0;        // of one core, over the load
  std::vector<double> late_s;  // per request: sent - scheduled
  std::vector<double> lag_s;   // how late its own clock called back, every 10 ms
  std::vector<int> cpus;       // that it was allowed to run on
  bool operator==(const GeneratorLoad&) const = default;
};

struct ServerLoadResult {
  bool open_loop = false;
  int64_t start_ns = 0, end_ns = 0;
  std::vector<RequestRecord> requests;  // in order of sending
  size_t most_at_once = 0;
  size_t never_sent = 0;  // were due, and still waited for a place when the load ended
  bool interrupted = false;
  GeneratorLoad generator;
};

// Runs the load from the calling thread. A request that fails is a record with its error;
// RunServerLoad fails only if the load cannot run at all (CPUs or files that do not exist). Raises
// the process's limit of open descriptors.
Result<ServerLoadResult> RunServerLoad(const LoadedServer& server, const LoadPlan& plan,
                                       const LoadHooks& hooks = {});

// Asks for the server's model, the first of /v1/models, and the longest sequence that it takes.
Status FindServedModel(LoadedServer& server);

// Finds how the server counts made-up text, from two short prompts (which also warm it up). Unknown
// if its answers carry no usage. Errors: the server refuses, with its reason (kFailed); it has not
// answered by the deadline of either (kTimeout).
Status MeasureTokenScale(LoadedServer& server, double deadline_s, const LoadHooks& hooks = {});

}  // namespace pinion::harness
