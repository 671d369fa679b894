#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/conversations.h"
#include "harness/load/http_client.h"
#include "harness/load/openai.h"
#include "harness/load/request_record.h"

namespace pinion::harness {

// What a load's user is told, and may ask for, while it runs.
struct LoadHooks {
  std::function<void(size_t completed, size_t failed, double elapsed_s)>
      progress;                                              // twice a second
  std::function<bool()> interrupted = [] { return false; };  // asked 20 times a second
};

// A load on a server: its requests and their times.
struct ServerLoadPlan {
  ServerUrl url;
  RequestStyle style;
  HttpAccess access;
  std::vector<Conversation> conversations;
  // Open loop: when each conversation begins, in seconds from the start, ascending. Unset: a closed
  // loop, in which each of `concurrency` clients begins the next conversation when one ends.
  std::optional<std::vector<double>> arrival_s;
  int concurrency = 1;  // open loop: most at a time, beyond which requests wait; 0: no limit
  // No request is sent after this, except the first one.
  double stop_sending_s = std::numeric_limits<double>::infinity();
  double deadline_s = std::numeric_limits<double>::infinity();  // running requests are cut off
  // If set and later: until then the deadline waits for the first request to end.
  std::optional<double> last_deadline_s;
  // Tokens that a request may have with its answer: a conversation ends before a turn that would
  // exceed it, by the server's counts so far. 0: unknown.
  int longest = 0;
  double timeout_s = 600;  // of one request
  std::vector<int> cpus;   // of the generator itself; empty: unchanged
  LoadHooks hooks;
};

// The generator's own load and delays, which affect the measurement.
struct GeneratorLoad {
  double cpu_s = 0;            // of its thread
  double cpu_share = 0;        // of one core, over the load
  std::vector<double> late_s;  // per request: sent - scheduled
  std::vector<double> lag_s;   // how late its own clock called back, every 10 ms
  std::vector<int> cpus;       // that it was allowed to run on
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
// RunServerLoad fails only if the load cannot run at all (CPUs that do not exist). Raises the
// process's limit of open descriptors.
Result<ServerLoadResult> RunServerLoad(const ServerLoadPlan& plan);

// The model that the server has: the first of /v1/models.
struct ServedModel {
  std::string name;
  int longest = 0;  // most tokens of a prompt and its answer (max_model_len); 0: unknown
};
Result<ServedModel> FindServedModel(const ServerUrl& url, const HttpAccess& access);

// How the server counts made-up text, from two short prompts (which also warm it up). Unknown
// if its answers carry no usage. Errors: the server refuses, with its reason (kFailed); it has not
// answered by the plan's deadline (kTimeout).
Result<TokenScale> MeasureTokenScale(const ServerLoadPlan& plan);

}  // namespace pinion::harness
