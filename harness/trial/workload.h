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

// What a trial's process is told: how to start the engine and what to load it with.
struct TrialRequest {
  EngineChoice engine;
  EngineOptions options;
  int replicas = 1;
  // Our own engine as a server too, as others always are: where replicas are compared with it.
  bool over_http = false;
  std::string log;  // where servers' logs go (Replicas in harness/engines)
  Workload workload;
  uint64_t seed = 1;      // of the prompts; the same for every candidate of a round
  double limit_s = 60;    // from the process's start; the load is cut to end by then
  bool ceilings = false;  // measure after the load what the machine can do at most

  bool is_served() const { return over_http || !engine.is_pinion(); }
};

Json ToJson(const TrialRequest& request);
Result<TrialRequest> ReadTrialRequest(const Json& object);

// Prompt number `index` of stream `stream` (0: warm-up, 1: the offline batch, 2...: the loops):
// `length` token ids below `vocabulary`, from (seed, stream, index) alone, so that every
// configuration meets the same prompts however many of them it gets through.
std::vector<int32_t> RandomPrompt(uint64_t seed, uint64_t stream, uint64_t index, int length,
                                  int vocabulary);

// The workload's lengths, text and prefix, as a load generator draws them.
WorkloadShape ShapeOf(const Workload& workload);

// One question in tokens, and how long its answer is to be.
struct TokenTurn {
  std::vector<int32_t> tokens;
  int output_len = 16;
};
// Turns that follow one another: a request has everything before it, answers included, and its own
// tokens.
using TokenConversation = std::vector<TokenTurn>;

// Conversation number `index` of stream `stream`, from (shape, seed, stream, index) alone: tokens
// as RandomPrompt's, behind one of the shape's shared prefixes of this stream. No request and its
// answer come to more than `longest` tokens; turns for which no room is left are left out.
TokenConversation MakeTokenConversation(const WorkloadShape& shape, uint64_t seed, uint64_t stream,
                                        uint64_t index, int vocabulary, int longest);

// An identity of token sequences, in order, as 16 hexadecimal digits.
std::string HashTokens(const std::vector<std::vector<int32_t>>& outputs);

}  // namespace pinion::harness
