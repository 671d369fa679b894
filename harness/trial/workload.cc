#include "harness/trial/workload.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
uint64_t SplitMix(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Json ToJson(const TrialRequest& request) {
  Json object = Json::MakeObject();
  object.Set("engine", ToJson(request.engine));
  object.Set("options", ToJson(request.options));
  object.Set("replicas", request.replicas);
  object.Set("over_http", request.over_http);
  object.Set("log", request.log);
  object.Set("workload", ToJson(request.workload));
  object.Set("seed", request.seed);
  object.Set("limit_s", request.limit_s);
  object.Set("ceilings", request.ceilings);
  return object;
}

Result<TrialRequest> ReadTrialRequest(const Json& object) {
  TrialRequest request;
  const Json* options = object.Find("options");
  const Json* workload = object.Find("workload");
  if (!options || !workload)
    return Fail(ErrorCode::kUsage, "a trial request needs 'options' and 'workload'");
  if (const Json* engine = object.Find("engine")) {
    PINION_ASSIGN(request.engine, ReadEngineChoice(*engine));
  }
  PINION_TRY(FromJson(*options, request.options));
  PINION_TRY(FromJson(*workload, request.workload));
  PINION_ASSIGN(const int64_t seed, Require<int64_t>(object, "seed"));
  PINION_ASSIGN(request.limit_s, Require<double>(object, "limit_s"));
  PINION_ASSIGN(request.replicas, Optional<int>(object, "replicas", 1));
  PINION_ASSIGN(request.over_http, Optional(object, "over_http", false));
  PINION_ASSIGN(request.log, Optional<std::string>(object, "log", ""));
  PINION_ASSIGN(request.ceilings, Optional(object, "ceilings", false));
  request.seed = static_cast<uint64_t>(seed);
  return request;
}

std::vector<int32_t> RandomPrompt(uint64_t seed, uint64_t stream, uint64_t index, int length,
                                  int vocabulary) {
  uint64_t state = seed;
  state = SplitMix(state) ^ (stream << 32) ^ index;
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(SplitMix(state) % static_cast<uint64_t>(vocabulary));
  return tokens;
}

WorkloadShape ShapeOf(const Workload& workload) {
  WorkloadShape shape;
  if (workload.name.empty()) {
    shape.name = "fixed";
    shape.prompt = Lengths::Fixed(workload.prompt_len);
    shape.output = Lengths::Fixed(workload.output_len);
  } else {
    const auto named = FindWorkload(workload.name);
    CHECK(named) << "a workload that was not checked: " << workload.name;
    shape = *named;
    shape.prompt.a = workload.prompt_len;
    shape.output.a = workload.output_len;
  }
  shape.shared_prefix = workload.shared_prefix;
  shape.prefixes = workload.prefixes;
  shape.turns = workload.turns;
  return shape;
}

TokenConversation MakeTokenConversation(const WorkloadShape& shape, uint64_t seed, uint64_t stream,
                                        uint64_t index, int vocabulary, int longest) {
  // Indices of prefixes and later turns among a stream's prompts, beyond all others.
  constexpr uint64_t kPrefixes = uint64_t{1} << 30, kTurn = uint64_t{1} << 24;
  uint64_t state = seed;
  std::mt19937_64 lengths(SplitMix(state) ^ (stream << 32) ^ index);
  TokenConversation conversation;
  std::vector<int32_t> prefix;
  if (shape.shared_prefix > 0)
    prefix =
        RandomPrompt(seed, stream, kPrefixes + lengths() % static_cast<uint64_t>(shape.prefixes),
                     std::min(shape.shared_prefix, longest / 2), vocabulary);
  int used = static_cast<int>(prefix.size());
  for (int turn = 0; turn < shape.turns && longest - used >= 2; ++turn) {
    const int prompt = std::min(shape.prompt.Draw(lengths), longest - used - 1);
    const int output = std::min(shape.output.Draw(lengths), longest - used - prompt);
    TokenTurn one{std::move(prefix), output};  // empty after the first turn
    const std::vector<int32_t> own =
        RandomPrompt(seed, stream, index + static_cast<uint64_t>(turn) * kTurn, prompt, vocabulary);
    one.tokens.insert(one.tokens.end(), own.begin(), own.end());
    prefix.clear();
    conversation.push_back(std::move(one));
    used += prompt + output;
  }
  return conversation;
}

std::string HashTokens(const std::vector<std::vector<int32_t>>& outputs) {
  uint64_t hash = 0;
  for (const std::vector<int32_t>& output : outputs) {
    hash = SplitMix(hash) ^ output.size();
    for (int32_t token : output) hash = SplitMix(hash) ^ static_cast<uint64_t>(token);
  }
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(SplitMix(hash)));
  return text;
}

}  // namespace pinion::harness
