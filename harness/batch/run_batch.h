#pragma once

#include <functional>
#include <vector>

#include "harness/batch/batch_file.h"
#include "harness/load/http_client.h"

namespace pinion::harness {

struct BatchPlan {
  std::vector<BatchRequest> requests;
  int at_once = 64;         // most requests that the server has
  double timeout_s = 3600;  // of each, from its sending
  // After which a request is sent again if the server was full (503), for as long as its timeout.
  double retry_s = 1;
  // Looked at every quarter of a second: true ends the running requests, and no more are sent.
  std::function<bool()> interrupted = [] { return false; };
  // Why the server has ended, looked at as often; empty while it runs.
  std::function<std::string()> why_ended = [] { return std::string(); };
};

// Sends the requests to the client's only server, in their order, and hands over each outcome as it
// comes, in any order. Runs on the calling thread, and so does `done`, whose error ends the batch.
// Errors: those of `done`; the server has ended (kFailed); interrupted (kExhausted).
Status RunBatch(HttpClient& client, const BatchPlan& plan,
                const std::function<Status(const BatchRequest&, const BatchOutcome&)>& done);

}  // namespace pinion::harness
