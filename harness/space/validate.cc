#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "harness/load/steady.h"
#include "harness/space/definition.h"
#include "harness/space/json_fields.h"

namespace pinion::harness {
namespace {

constexpr int kMaxTokens = 1 << 20;
// Of the prompts of one load, whose texts are made before it is sent, at some 6 bytes a token.
constexpr int64_t kMostLoadTokens = int64_t{1} << 27;

Status CheckRange(const char* key, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("'", key, "' is ", value, "; it must be from ", low, " to ", high));
}

// The first value that stands in the list for the second time.
template <typename T>
std::optional<T> FirstTwice(const std::vector<T>& list) {
  std::set<T> seen;
  for (const T& one : list)
    if (!seen.insert(one).second) return one;
  return std::nullopt;
}

Status CheckTokens(const Workload& workload) {
  const LoadPlan& load = workload.load;
  int64_t prompts = load.num_prompts;
  for (const int clients : workload.concurrency)
    prompts = std::max<int64_t>(prompts, RequestsForSteadyWindow(clients));
  const int64_t each =
      load.shape.shared_prefix + int64_t{load.shape.turns} * int64_t{load.shape.prompt_len()};
  if (prompts * each <= kMostLoadTokens) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("a load of ", prompts, " prompts of ", each, " tokens has ", prompts * each,
                     " tokens; it may have at most ", kMostLoadTokens,
                     ": lower 'num_prompts', 'concurrency' or the prompts' length"));
}

}  // namespace

Status Validate(const Workload& workload) {
  const WorkloadShape& shape = workload.load.shape;
  PINION_TRY(CheckRange("prompt_len", shape.prompt_len(), 1, kMaxTokens));
  // At least two tokens: with one there is no time per token after the first.
  PINION_TRY(CheckRange("output_len", shape.output_len(), 2, kMaxTokens));
  PINION_TRY(CheckRange("num_prompts", workload.load.num_prompts, 1, kMaxTokens));
  PINION_TRY(CheckRange("shared_prefix", shape.shared_prefix, 0, kMaxTokens));
  PINION_TRY(CheckRange("prefixes", shape.prefixes, 1, kMaxClients));
  PINION_TRY(CheckRange("turns", shape.turns, 1, kMaxClients));
  for (int clients : workload.concurrency)
    PINION_TRY(CheckRange("concurrency", clients, 1, kMaxClients));
  if (const auto twice = FirstTwice(workload.concurrency))
    return Fail(ErrorCode::kUsage, StrCat("'concurrency' lists ", *twice, " twice"));
  for (const double rate : workload.rates)
    if (!(rate >= kLeastRate && rate <= kMaxRate))
      return Fail(ErrorCode::kUsage, StrCat("'request_rate' is ", rate, "; it must be from ",
                                            kLeastRate, " to ", kMaxRate, " requests/s"));
  if (const auto twice = FirstTwice(workload.rates))
    return Fail(ErrorCode::kUsage, StrCat("'request_rate' lists ", *twice, " twice"));
  if (!workload.runs_batch() && workload.levels().empty() && !workload.slo)
    return Fail(ErrorCode::kUsage,
                "'workload' has no load: without 'batch' it needs 'concurrency', 'request_rate' or "
                "'slo'");
  return CheckTokens(workload);
}

std::vector<LoadLevel> Workload::levels() const {
  std::vector<LoadLevel> levels(concurrency.begin(), concurrency.end());
  for (const double rate : rates) levels.push_back(LoadLevel::AtRate(rate));
  return levels;
}

int Workload::most_clients() const {
  int most = runs_batch() ? load.num_prompts : 0;
  for (const int clients : concurrency) most = std::max(most, clients);
  return most;
}

namespace {

Status ValidateNumbers(const Definition& definition) {
  PINION_TRY(CheckRange("rounds", definition.rounds, 1, kMaxRounds));
  PINION_TRY(CheckRange("random_points", definition.random_points, 2, kMaxRounds));
  PINION_TRY(CheckRange("restarts", definition.restarts, 0, kMaxRounds));
  for (const auto& [key, fraction] : {std::pair("epsilon", definition.epsilon),
                                      std::pair("cores_within", definition.cores_within)})
    if (!(fraction >= kLeastEpsilon && fraction <= 0.5))
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' is ", fraction, "; it must be a fraction from 0.001 to 0.5"));
  if (!(definition.divergence_limit_nats >= 0))
    return Fail(ErrorCode::kUsage,
                StrCat("'divergence_limit_nats' is ", definition.divergence_limit_nats,
                       "; it must be at least 0 nats per token"));
  for (const auto& [key, price] : {std::pair("price_per_hour", definition.price_per_hour),
                                   std::pair("price_per_kwh", definition.price_per_kwh)})
    if (price && !(*price > 0 && std::isfinite(*price)))
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' is ", *price, "; it must be above 0, in any currency"));
  if (definition.strategy == Strategy::kPair && definition.objectives.size() > 1)
    return Fail(ErrorCode::kUsage,
                StrCat("strategy pair judges one objective, not ", definition.objectives.size(),
                       ": name one with --objectives"));
  for (const auto& [key, seconds] : {std::pair("budget", std::optional(definition.budget_s)),
                                     std::pair("trial_limit", definition.trial_limit_s)})
    if (seconds && !(*seconds > 0))
      return Fail(ErrorCode::kUsage, StrCat("'", key, "' is ", *seconds,
                                            " seconds; it must be above 0, such as 20s or 10m"));
  return {};
}

bool IsEngine(const Definition& definition, const std::string& name) {
  return std::any_of(definition.engines.begin(), definition.engines.end(),
                     [&](const EngineChoice& engine) { return engine.name == name; });
}

Status CheckEngine(const Definition& definition, const std::string& name, const char* where) {
  if (IsEngine(definition, name)) return {};
  std::vector<std::string> known;
  for (const EngineChoice& engine : definition.engines) known.push_back(engine.name);
  return Fail(ErrorCode::kUsage, StrCat("no engine is named '", name, "', as ", where,
                                        " says; there are ", Join(known, ", ")));
}

Status ValidateEngines(const Definition& definition) {
  std::set<std::string> names;
  for (const EngineChoice& engine : definition.engines)
    if (!names.insert(engine.name).second)
      return Fail(ErrorCode::kUsage, StrCat("two of 'engines' are named '", engine.name,
                                            "': give each a 'name' of its own"));
  for (const Axis& axis : definition.axes)
    for (const Condition& condition : axis.when)
      for (const std::string& value : condition.values)
        if (condition.key == "engine") PINION_TRY(CheckEngine(definition, value, "'when'"));
  for (const Json& listed : definition.candidates)
    if (const Json* name = listed.Find("engine")) {
      PINION_ASSIGN(const std::string text, ToText(*name, "'engine' of one of 'candidates'"));
      PINION_TRY(CheckEngine(definition, text, "one of 'candidates'"));
    }
  return {};
}

}  // namespace

int LeastPrompts(Objective objective, int output_len) {
  const ObjectiveRow& row = RowOf(objective);
  const int wanted = row.least_requests ? row.least_requests(output_len) : 1;
  return wanted > 1 ? LeastForSteady(objective.level, wanted) : 1;
}

namespace {

// Whether the objective looks at the offline batch. Energy is that of all loads.
bool NeedsBatch(const Definition& definition, Objective objective) {
  return objective == Objective::kThroughput || objective == Objective::kBalanced ||
         objective == Objective::kCores ||
         (objective == Objective::kCost && definition.price_per_hour);
}

Status CheckBatch(const Definition& definition, Objective objective) {
  if (definition.workload.runs_batch() || !NeedsBatch(definition, objective)) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("objective '", Name(objective),
                     "' is measured on the offline batch: take 'batch': false (--no-batch) out of "
                     "the workload, or ask for other objectives"));
}

// An objective under load needs a loop of as many clients, and enough requests for its percentile.
Status CheckLoad(const Definition& definition, Objective objective) {
  const ObjectiveRow& row = RowOf(objective);
  if (!row.at_load) return {};
  const std::vector<LoadLevel> levels = definition.workload.levels();
  if (std::find(levels.begin(), levels.end(), objective.level) == levels.end()) {
    const bool is_open = objective.level.is_open();
    const std::string key = LevelKey(objective.level);
    return Fail(ErrorCode::kUsage,
                StrCat("objective '", Name(objective), "' is measured at ",
                       LevelText(objective.level), ": add ", key.substr(0, key.find('r')), " to '",
                       is_open ? "request_rate" : "concurrency", "'"));
  }
  const LoadPlan& load = definition.workload.load;
  const int least = LeastPrompts(objective, load.shape.output_len());
  if (load.num_prompts >= least) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("objective '", Name(objective), "' needs at least ", least,
                     " requests in every trial for a 95th percentile: raise 'num_prompts' from ",
                     load.num_prompts, " to ", least));
}

// Each objective needs a load that measures it.
Status ValidateObjectives(const Definition& definition) {
  const std::set<Objective> unique(definition.objectives.begin(), definition.objectives.end());
  if (unique.empty())
    return Fail(ErrorCode::kUsage, "'objectives' must name at least one objective");
  if (const auto twice = FirstTwice(definition.objectives))
    return Fail(ErrorCode::kUsage, StrCat("'objectives' lists ", Name(*twice), " twice"));
  const auto& clients = definition.workload.concurrency;
  for (const Objective objective : definition.objectives) {
    PINION_TRY(CheckLoad(definition, objective));
    PINION_TRY(CheckBatch(definition, objective));
  }
  const bool needs_one = unique.count(Objective::kLatency) || unique.count(Objective::kBalanced);
  if (needs_one && std::find(clients.begin(), clients.end(), 1) == clients.end())
    return Fail(ErrorCode::kUsage,
                "objectives 'latency' and 'balanced' are measured at concurrency 1: add 1 to "
                "'concurrency' or ask for 'throughput' alone");
  if (unique.count(Objective::kGoodput) && !definition.workload.slo)
    return Fail(ErrorCode::kUsage,
                "objective 'goodput' is the highest load that meets an SLO: give --slo "
                "ttft=500ms,tpot=100ms, or 'slo' in the definition's 'workload'");
  if (unique.count(Objective::kCost) && !definition.price_per_hour && !definition.price_per_kwh)
    return Fail(ErrorCode::kUsage,
                "objective 'cost' needs a price: give --price-per-hour (of the machine), "
                "--price-per-kwh, or both");
  return {};
}

}  // namespace

bool RunsBatch(const Definition& definition) {
  const auto& objectives = definition.objectives;
  return definition.workload.batch.value_or(
      definition.workload.levels().empty() ||
      std::any_of(objectives.begin(), objectives.end(),
                  [&](Objective objective) { return NeedsBatch(definition, objective); }));
}

Status Validate(const Definition& definition) {
  PINION_TRY(Validate(definition.workload));
  PINION_TRY(ValidateNumbers(definition));
  PINION_TRY(ValidateEngines(definition));
  return ValidateObjectives(definition);
}

}  // namespace pinion::harness
