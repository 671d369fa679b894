#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/load/plan.h"
#include "harness/space/engine_choice.h"
#include "harness/space/objectives.h"
#include "harness/space/strategy.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

// A setting's condition: the axis varies only in configurations in which `key` has one of `values`.
struct Condition {
  std::string key;  // "engine" (by name), a setting, or an engine's own one
  std::vector<std::string> values;
  bool operator==(const Condition&) const = default;
};

inline constexpr int kMaxRounds = 10'000;  // limits of a definition's values
inline constexpr double kLeastEpsilon = 0.001;

// Values to try of one setting: at least one, each of the setting's JSON type, or for an engine's
// own setting as ReadOwnSetting takes them.
struct Axis {
  std::string key;
  std::vector<Json> values;
  std::vector<Condition> when = {};  // all of them must hold
  bool operator==(const Axis&) const = default;
};

// A grid: every combination, the last axis changing fastest. At most one axis a setting.
using Axes = std::vector<Axis>;
const Axis* FindAxis(const Axes& axes, std::string_view key);
// Replaces the setting's axis, or adds one at its place in the order of the registry, engines' own
// ones behind.
void SetAxis(std::string_view key, std::vector<Json> values, Axes& axes);

// The limits that users accept. Goodput is the highest load at which enough requests meet them, and
// every trial searches for it.
struct SloTarget {
  Slo limits;           // at least one
  double attain = 0.9;  // share of the requests that must meet them
  bool by_rate = true;  // an open loop's requests/s; else clients of a closed loop
  // First load of each search; unset: half the requests/s that the trial's other loads reached, or
  // 2 clients.
  std::optional<double> start{};

  const char* unit() const { return by_rate ? "requests/s" : "clients"; }
};

// The load of every trial: random prompts, the same for all candidates of a round.
struct Workload {
  // Requests of each of its loads, EOS ignored; num_prompts are those of the offline batch, and the
  // fewest of the others.
  LoadPlan load{};
  std::vector<int> concurrency = {1, 8};  // closed loops, each measured on its own
  std::optional<SloTarget> slo{};
  std::vector<double> rates{};  // open loops, each measured on its own: requests/s
  // Whether there is an offline batch, of num_prompts requests at once. Unset in a definition:
  // RunsBatch says.
  std::optional<bool> batch{};

  std::vector<LoadLevel> levels() const;  // of its closed loops, then of its open ones
  bool runs_batch() const { return batch.value_or(true); }
  int most_clients() const;  // of the batch and the closed loops; 0: of none
};

// Limits that a configuration must keep to be recommended. One that breaks a limit is disqualified,
// with the number.
struct Constraints {
  std::optional<uint64_t> peak_rss_bytes;  // of the server's processes, summed
  std::optional<int> cores;                // threads of all ranks

  bool any() const { return peak_rss_bytes || cores; }
};

// A sweep as data, read by --def and stored in results.db.
struct Definition {
  // At least one; all of them race together. The first one's defaults are the baseline.
  std::vector<EngineChoice> engines = {EngineChoice()};
  Axes axes;
  // Further points: objects of settings that differ from the base; "engine" names the one they are
  // for (without it: every one that has these settings).
  std::vector<Json> candidates;
  Workload workload;
  std::vector<Objective> objectives = {Objective::kThroughput, Objective::kLatency,
                                       Objective::kBalanced};
  Constraints constraints;
  double cores_within = 0.05;  // share of the throughput that halving the cores may cost
  std::optional<double> price_per_hour, price_per_kwh;  // of the whole machine; of its power
  double budget_s = 1800;
  int rounds = 20;  // at most; a race ends when no remaining candidate can be better
  Strategy strategy = Strategy::kRacing;
  double epsilon = 0.02;   // smallest difference worth having, a fraction
  int random_points = 24;  // of kRandom, the baseline included
  int restarts = 2;        // of kCoordinate
  uint64_t seed = 1;
  // How far the next-token distributions of a candidate may lie from the baseline's if its dtype,
  // activations, head_dtype or kv_cache_dtype differs: KL divergence in nats per token. 0.01 is the
  // limit of --activations auto for int8; greedy texts then differ only if the two best tokens are
  // nearly tied.
  double divergence_limit_nats = 0.01;
  std::optional<double>
      trial_limit_s;  // a trial's load is cut to end by then; unset: one that lets
                      // the rounds fit the budget (TrialLimit in harness/sweep)
};

// Whether its trials run the offline batch: as its workload says, else if an objective needs it
// or there is no other load.
bool RunsBatch(const Definition& definition);

// The engine of that name; the first one if there is none.
const EngineChoice& EngineNamed(const Definition& definition, std::string_view name);

// Overwrites the fields that `object` names. Unknown keys, wrong types and values out of range are
// kUsage errors that name the key; "budget" is text ("10m") or seconds.
Status FromJson(const Json& object, Definition& definition);
Json ToJson(const Definition& definition);
Status FromJson(const Json& object, Workload& workload);
Json ToJson(const Workload& workload);
Json ToJson(const Axes& axes);

// Prompts of a workload with which the objective's loop has its percentile.
int LeastPrompts(Objective objective, int output_len);

// The checks of FromJson, for definitions that flags have changed.
Status Validate(const Definition& definition);
Status Validate(const Workload& workload);

}  // namespace pinion::harness
