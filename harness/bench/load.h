#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/decoder/cost.h"
#include "engine/run/engine.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

// One step of a load.
struct LoadStep {
  bool prefills = false;  // a prompt was computed in it
  double seconds = 0;
  StepCost cost;  // the least work for it
};

// One request as its client saw it.
struct ClientTrace {
  RequestTrace times;
  std::vector<int32_t> tokens;
  double queue_s = 0, prefill_s = 0;  // from the engine's stamps: arrival, scheduling, first token
};

struct LoadResult {
  std::vector<ClientTrace> clients;  // in order of sending
  StepWork prefill, decode;          // of the load's steps
  int64_t end_ns = 0;

  size_t OutputTokens() const;  // of all clients
  std::vector<RequestTrace> Traces() const;
};

// Requests to one engine, EOS ignored, greedy: `clients` at a time, each next one sent when one
// ends.
struct EngineLoad {
  int clients = 1;
  int requests = 1;    // in all; clients >= requests: everything at once
  int output_len = 8;  // tokens of each answer
  bool pools = false;  // the model gives an embedding or scores instead: an answer is one event
  std::function<std::vector<int32_t>(int index)> prompt;
  const Clock* clock = &kMachineClock;  // of the clients' times
  // If given: called after every step. The load's clock, and with it the clients' times, stops
  // meanwhile.
  std::function<void(const LoadStep&)> after_step;
};

// Runs the load on an idle engine, from the thread that started it; the engine is idle afterwards.
// Errors: the engine refuses a request, or gives one up.
Result<LoadResult> RunLoad(Engine& engine, const EngineLoad& plan);

}  // namespace pinion::harness
