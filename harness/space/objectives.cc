#include "harness/space/objectives.h"

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

const std::vector<Strategy>& AllStrategies() {
  static const std::vector<Strategy> all = {Strategy::kRacing, Strategy::kGrid, Strategy::kRandom,
                                            Strategy::kCoordinate};
  return all;
}

template <typename T>
Result<T> ParseName(const std::string& name, const char* what, const std::vector<T>& all) {
  std::vector<std::string> known;
  for (const T one : all) {
    if (name == Name(one)) return one;
    known.emplace_back(Name(one));
  }
  return Fail(ErrorCode::kUsage,
              StrCat("unknown ", what, " '", name, "'; known are ", Join(known, ", ")));
}

}  // namespace

const char* Name(Objective objective) {
  switch (objective) {
    case Objective::kThroughput:
      return "throughput";
    case Objective::kLatency:
      return "latency";
    case Objective::kBalanced:
      return "balanced";
    case Objective::kGoodput:
      return "goodput";
    case Objective::kCores:
      return "cores";
    case Objective::kEnergy:
      return "energy";
  }
  return "";
}

const std::vector<Objective>& AllObjectives() {
  static const std::vector<Objective> all = {Objective::kThroughput, Objective::kLatency,
                                             Objective::kBalanced,   Objective::kGoodput,
                                             Objective::kCores,      Objective::kEnergy};
  return all;
}

Result<Objective> ParseObjective(const std::string& name) {
  return ParseName(name, "objective", AllObjectives());
}

const char* Name(Strategy strategy) {
  switch (strategy) {
    case Strategy::kRacing:
      return "racing";
    case Strategy::kGrid:
      return "grid";
    case Strategy::kRandom:
      return "random";
    case Strategy::kCoordinate:
      return "coordinate";
  }
  return "";
}

Result<Strategy> ParseStrategy(const std::string& name) {
  return ParseName(name, "strategy", AllStrategies());
}

}  // namespace pinion::harness
