#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/load/conversations.h"
#include "harness/space/definition.h"

namespace pinion::harness {

// The request to a trial's process: how to start the engine, and its load.
struct TrialRequest {
  EngineChoice engine;
  EngineOptions options;
  int replicas = 1;
  // Measure Pinion as a server too, like other engines: for comparison with replicas.
  bool over_http = false;
  std::string log;  // path for the servers' logs (Replicas in harness/engines)
  Workload workload;
  uint64_t seed = 1;      // of the prompts; the same for every candidate of a round
  double limit_s = 60;    // from the process's start; the load is cut to end by then
  bool ceilings = false;  // measure the machine's ceilings after the load

  bool is_served() const { return over_http || !engine.is_pinion(); }
};

Json ToJson(const TrialRequest& request);
Result<TrialRequest> ReadTrialRequest(const Json& object);

// Prompt number `index` of stream `stream` (0: warm-up, 1: the offline batch, 2...: the loops):
// `length` token ids below `vocabulary`, from (seed, stream, index) alone, so that every
// configuration gets the same prompts, however many of them it processes.
std::vector<int32_t> RandomPrompt(uint64_t seed, uint64_t stream, uint64_t index, int length,
                                  int vocabulary);

// The workload's lengths, text and prefix, in the load generator's form.
WorkloadShape ShapeOf(const Workload& workload);

// One question in tokens, and the length of its answer.
struct TokenTurn {
  std::vector<int32_t> tokens;
  int output_len = 16;
};
// Consecutive turns: a request has everything before it, answers included, and its own
// tokens.
using TokenConversation = std::vector<TokenTurn>;

// Conversation number `index` of stream `stream`, from (shape, seed, stream, index) alone: tokens
// as RandomPrompt's, after one of the shape's shared prefixes of this stream. No request and its
// answer exceed `longest` tokens; turns for which no room is left are left out.
TokenConversation MakeTokenConversation(const WorkloadShape& shape, uint64_t seed, uint64_t stream,
                                        uint64_t index, int vocabulary, int longest);

// An identity of token sequences, in order, as 16 hexadecimal digits.
std::string HashTokens(const std::vector<std::vector<int32_t>>& outputs);

}  // namespace pinion::harness
