#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/model/cost.h"
#include "engine/run/engine.h"
#include "harness/stats/serving.h"
#include "harness/trial/workload.h"

namespace pinion::harness {

// The time of a load by kind of step, from the engine's own counters around every step.
struct StepTimes {
  uint64_t prompt_tokens = 0;  // computed in steps that compute prompts
  double prefill_s = 0;        // time of those steps, including their decodes
  uint64_t decode_tokens = 0;  // from the other steps
  double decode_s = 0;
  // The least work for those steps. A prompt counts in the step that yields its first token.
  StepCost prefill_cost, decode_cost;

  double prefill_tokens_per_s() const;  // 0 without such a step
  double decode_tokens_per_s() const;
};

// One step of a load.
struct LoadStep {
  bool prefills = false;  // a prompt was computed in it
  double seconds = 0;
  StepCost cost;  // the least work for it, counted as in StepTimes
};

// The load's use of the KV cache.
struct KvUse {
  uint64_t preemptions = 0;
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  size_t most_blocks = 0, blocks = 0;  // in use after a step; in all
};

// One request as its client saw it.
struct ClientTrace {
  size_t conversation = 0, turn = 0;
  RequestTrace times;
  size_t prompt_tokens = 0;
  std::vector<int32_t> tokens;
  bool complete = false;
  double queue_s = 0, prefill_s = 0;  // from the engine's stamps: arrival, scheduling, first token
};

struct LoadResult {
  std::vector<ClientTrace> clients;  // in order of sending; complete or cut off
  StepTimes steps;
  KvUse kv;
  std::vector<double> late_s;  // by request: the time from when it could be sent until it was
  bool cut = false;            // the deadline came before the last request ended
  int64_t end_ns = 0;

  size_t OutputTokens() const;  // of all clients
  std::vector<RequestTrace> CompleteTraces() const;
  // Those of requests that got two tokens at least, complete or not.
  std::vector<RequestTrace> TracesWithDecode() const;
};

// Conversations with one engine, EOS ignored, greedy. A closed loop: `clients` at a time, each next
// one starting when one ends; or an open loop, in which each starts when it is due. A
// conversation's next turn is sent when the previous one has been answered.
struct LoadPlan {
  int clients = 1;   // of a closed loop
  int requests = 1;  // conversations in all; clients >= requests: everything at once (offline)
  // Open loop: seconds from the start, ascending, one for each conversation. A request due while
  // the engine computes is sent when its step ends, and is timed from when it was due.
  std::optional<std::vector<double>> arrival_s;
  const Clock* clock = &kMachineClock;   // of all times here and in the result
  int64_t stop_sending_ns = INT64_MAX;   // no request is sent after this
  int64_t deadline_ns = INT64_MAX;       // running requests are aborted then, once one has ended
  int64_t last_deadline_ns = INT64_MAX;  // running requests are aborted then in any case
  std::function<TokenConversation(int index)> conversation;
  // If given: called after every step. The load's clock, and with it all of the times above, stops
  // meanwhile.
  std::function<void(const LoadStep&)> after_step;
};

// The first turns of `conversation`, with answers of at most `tokens`: for warming up.
std::function<TokenConversation(int index)> FirstTurns(
    std::function<TokenConversation(int index)> conversation, int tokens);

// A client that was too slow itself may have spoilt the load: it sent more than 1 % of the median
// TTFT behind schedule at p95, and more than 1 ms. Empty if it was on time.
std::string LateClient(const LoadResult& load);

// Of an engine's weights, activations and KV.
kernels::Dtype DtypeOf(const EngineInfo& info);

// Runs the load on an idle engine, from the thread that started it; the engine is idle afterwards.
// At least one request is sent, whatever the clock says.
Result<LoadResult> RunLoad(Engine& engine, const LoadPlan& plan);

}  // namespace pinion::harness
