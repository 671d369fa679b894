#include "harness/space/strategy.h"

#include <utility>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr std::pair<Strategy, const char*> kStrategies[] = {
    {Strategy::kRacing, "racing"},   {Strategy::kGrid, "grid"},
    {Strategy::kRandom, "random"},   {Strategy::kCoordinate, "coordinate"},
    {Strategy::kHalving, "halving"}, {Strategy::kTpe, "tpe"},
    {Strategy::kPair, "pair"}};

}  // namespace

const char* Name(Strategy strategy) { return kStrategies[static_cast<size_t>(strategy)].second; }

Result<Strategy> ParseStrategy(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [strategy, text] : kStrategies) {
    if (name == text) return strategy;
    known.emplace_back(text);
  }
  return Fail(ErrorCode::kUsage,
              StrCat("unknown strategy '", name, "'; known are ", Join(known, ", ")));
}

}  // namespace pinion::harness
