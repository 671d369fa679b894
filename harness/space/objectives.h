#pragma once

#include <compare>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/stats/load_level.h"

namespace pinion::harness {

// The rows of Objectives(), in their order.
enum class ObjectiveKind {
  kThroughput,
  kLatency,
  kBalanced,
  kGoodput,
  kCores,
  kEnergy,
  kCost,
  kTtft,
  kTtftP95,
  kTpot,
  kItl,
  kItlP95,
  kE2el,
  kE2elP95,
};

// Objective of a sweep: one of the named quantities, or a latency under a stated load ("itl_p95@8",
// "ttft_p95@2.5rps"). LogScore in harness/sweep/score.h defines the score that each maximises.
struct Objective {
  ObjectiveKind kind = ObjectiveKind::kThroughput;
  LoadLevel level{};  // of a latency under load; else neither

  auto operator<=>(const Objective&) const = default;

  static const Objective kThroughput, kLatency, kBalanced, kGoodput, kCores, kEnergy, kCost;
};

inline constexpr Objective Objective::kThroughput{ObjectiveKind::kThroughput};
inline constexpr Objective Objective::kLatency{ObjectiveKind::kLatency};
inline constexpr Objective Objective::kBalanced{ObjectiveKind::kBalanced};
inline constexpr Objective Objective::kGoodput{ObjectiveKind::kGoodput};
inline constexpr Objective Objective::kCores{ObjectiveKind::kCores};
inline constexpr Objective Objective::kEnergy{ObjectiveKind::kEnergy};
inline constexpr Objective Objective::kCost{ObjectiveKind::kCost};

struct ObjectiveRow {
  ObjectiveKind kind;
  const char* name;
  // The sample that is scored; nullptr: LogScore computes the score of several.
  const char* metric;
  const char* figure;  // the sample's short name
  const char* gain;    // words after "8.2 %"
  const char* goal;
  bool at_load = false;  // its name goes on with "@" and LevelKey

  // Requests needed at `output_len` tokens each, so that the sample has its percentile.
  int (*least_requests)(int output_len) = nullptr;
};

const std::vector<ObjectiveRow>& Objectives();
const ObjectiveRow& RowOf(Objective objective);

std::string Name(Objective objective);  // "throughput", "itl_p95@8", "itl@2.5rps"
std::string Goal(Objective objective);  // "shortest median gap between tokens, 8 clients"

// By its name; the error lists them.
Result<Objective> ParseObjective(const std::string& name);

}  // namespace pinion::harness
