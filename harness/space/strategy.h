#pragma once

#include <string>

#include "engine/base/result.h"

namespace pinion::harness {

// How candidates are chosen and dropped.
enum class Strategy {
  kRacing,      // all of them, dropped as soon as they cannot win
  kGrid,        // all of them in every round
  kRandom,      // a random choice of them, raced
  kCoordinate,  // one setting at a time, from the baseline and from random points, each step a race
  kHalving,     // all of them for a round, the better half for two, ... until a few race
  kTpe,         // a few at a time, proposed by a model of those measured; the best of them race
  kPair,        // two and no choice: every round counts, one interval decides (sweep/pair.h)
};
const char* Name(
    Strategy strategy);  // "racing", "grid", "random", "coordinate", "halving", "tpe", "pair"
Result<Strategy> ParseStrategy(const std::string& name);

}  // namespace pinion::harness
