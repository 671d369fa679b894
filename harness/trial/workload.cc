#include "harness/trial/workload.h"

#include <cstdio>

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
