#include "harness/space/definition.h"

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "harness/load/conversations.h"

namespace pinion::harness {
namespace {

// Longest loads that make sense; they catch a swapped unit, not a big machine.
constexpr int kMaxTokens = 1 << 20, kMaxClients = 4096, kMaxRounds = 10'000;

Status CheckKeys(const Json& object, const std::string& where,
                 const std::vector<std::string>& known) {
  if (!object.is_object())
    return Fail(ErrorCode::kUsage, StrCat(where, " must be an object, not ", object.type_name()));
  for (const auto& [key, value] : object.object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Fail(ErrorCode::kUsage,
                  StrCat("unknown key '", key, "' in ", where, "; known are ", Join(known, ", ")));
  return {};
}

Result<int> ToInt(const Json& value, const std::string& what) {
  if (!value.is_int())
    return Fail(ErrorCode::kUsage, StrCat(what, " must be an integer, not ", value.Dump()));
  if (value.integer() < INT32_MIN || value.integer() > INT32_MAX)
    return Fail(ErrorCode::kUsage, StrCat(what, " ", value.Dump(), " is out of range"));
  return static_cast<int>(value.integer());
}

Result<std::string> ToText(const Json& value, const std::string& what) {
  if (!value.is_string())
    return Fail(ErrorCode::kUsage, StrCat(what, " must be a string, not ", value.Dump()));
  return value.string();
}

// 4, 0.5 or "512MiB" -> GiB.
Result<double> ToGib(const Json& value, const std::string& what) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  if (value.is_number() && value.number() > 0) return value.number();
  if (!value.is_string())
    return Fail(ErrorCode::kUsage,
                StrCat(what, " must be GiB above 0 or text as \"512MiB\", not ", value.Dump()));
  PINION_ASSIGN(const uint64_t bytes, ParseBytes(value.string(), kGib, what));
  return static_cast<double>(bytes) / static_cast<double>(kGib);
}

template <typename T, typename Convert>
Status ReadList(const Json& object, const std::string& key, Convert convert, std::vector<T>& list) {
  const Json* value = object.Find(key);
  if (!value) return {};
  if (!value->is_array() || value->array().empty())
    return Fail(ErrorCode::kUsage,
                StrCat("'", key, "' must be a list of at least one value, not ", value->Dump()));
  list.clear();
  for (const Json& item : value->array()) {
    PINION_ASSIGN(T one, convert(item, StrCat("a value of '", key, "'")));
    list.push_back(std::move(one));
  }
  return {};
}

Status ReadInt(const Json& object, const std::string& key, int& field) {
  if (const Json* value = object.Find(key)) {
    PINION_ASSIGN(field, ToInt(*value, StrCat("'", key, "'")));
  }
  return {};
}

Status FromJson(const Json& object, Space& space) {
  PINION_TRY(
      CheckKeys(object, "'space'",
                {"threads_bind", "reserved_cpus", "kv_cache_space", "tensor_parallel", "isa",
                 "dtype", "activations", "head_dtype", "kv_cache_dtype", "max_num_batched_tokens",
                 "max_num_seqs", "allocator", "openmp", "huge_pages"}));
  PINION_TRY(ReadList(object, "threads_bind", ToText, space.threads_bind));
  PINION_TRY(ReadList(object, "reserved_cpus", ToInt, space.reserved_cpus));
  PINION_TRY(ReadList(object, "kv_cache_space", ToGib, space.kv_cache_space_gib));
  PINION_TRY(ReadList(object, "tensor_parallel", ToInt, space.tensor_parallel));
  PINION_TRY(ReadList(object, "isa", ToText, space.isa));
  PINION_TRY(ReadList(object, "dtype", ToText, space.dtype));
  PINION_TRY(ReadList(object, "activations", ToText, space.activations));
  PINION_TRY(ReadList(object, "head_dtype", ToText, space.head_dtype));
  PINION_TRY(ReadList(object, "kv_cache_dtype", ToText, space.kv_cache_dtype));
  PINION_TRY(ReadList(object, "max_num_batched_tokens", ToInt, space.max_num_batched_tokens));
  PINION_TRY(ReadList(object, "max_num_seqs", ToInt, space.max_num_seqs));
  PINION_TRY(ReadList(object, "allocator", ToText, space.allocator));
  PINION_TRY(ReadList(object, "openmp", ToText, space.openmp));
  return ReadList(object, "huge_pages", ToText, space.huge_pages);
}

Status ReadSeconds(const Json& object, const std::string& key, double& seconds) {
  const Json* value = object.Find(key);
  if (!value) return {};
  if (value->is_number()) {
    seconds = value->number();
  } else if (value->is_string()) {
    PINION_ASSIGN(seconds, ParseDuration(value->string(), StrCat("'", key, "'")));
  } else {
    return Fail(ErrorCode::kUsage,
                StrCat("'", key, "' must be seconds or text as \"10m\", not ", value->Dump()));
  }
  return {};
}

Status FromJson(const Json& object, Constraints& constraints) {
  PINION_TRY(CheckKeys(object, "'constraints'", {"peak_rss", "cores"}));
  constraints = {};
  if (const Json* bytes = object.Find("peak_rss")) {
    PINION_ASSIGN(const double gib, ToGib(*bytes, "'peak_rss'"));
    constraints.peak_rss_bytes = static_cast<uint64_t>(gib * (uint64_t{1} << 30));
  }
  if (object.Find("cores")) PINION_TRY(ReadInt(object, "cores", constraints.cores.emplace()));
  if (constraints.cores.value_or(1) > 0) return {};
  return Fail(ErrorCode::kUsage, "'cores' of 'constraints' must be at least 1");
}

Json ToJson(const Constraints& constraints) {
  Json object = Json::MakeObject();
  if (constraints.peak_rss_bytes)
    object.Set("peak_rss", static_cast<double>(*constraints.peak_rss_bytes) / (uint64_t{1} << 30));
  if (constraints.cores) object.Set("cores", *constraints.cores);
  return object;
}

Status ReadCandidates(const Json& object, std::vector<Json>& candidates) {
  const Json* value = object.Find("candidates");
  if (!value) return {};
  if (!value->is_array())
    return Fail(ErrorCode::kUsage, "'candidates' must be a list of objects of settings");
  candidates.clear();
  for (const Json& point : value->array()) {
    if (!point.is_object() || point.object().empty())
      return Fail(ErrorCode::kUsage,
                  StrCat("each of 'candidates' must be an object of settings, as "
                         "{\"isa\":\"avx2\"}, not ",
                         point.Dump()));
    candidates.push_back(point);
  }
  return {};
}

Status CheckRange(const char* key, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("'", key, "' is ", value, "; it must be from ", low, " to ", high));
}

// Seconds or text as "500ms"; unset where the key is not there.
Result<std::optional<double>> ToLimit(const Json& object, const std::string& key) {
  if (!object.Find(key)) return std::optional<double>();
  double seconds = 0;
  PINION_TRY(ReadSeconds(object, key, seconds));
  if (!(seconds > 0))
    return Fail(ErrorCode::kUsage, StrCat("'", key, "' in 'slo' must be above 0 seconds"));
  return std::optional(seconds);
}

Status ReadNumber(const Json& object, const std::string& key, double& field) {
  const Json* value = object.Find(key);
  if (!value) return {};
  if (!value->is_number())
    return Fail(ErrorCode::kUsage, StrCat("'", key, "' must be a number, not ", value->Dump()));
  field = value->number();
  return {};
}

Result<SloTarget> ToSlo(const Json& object) {
  PINION_TRY(CheckKeys(object, "'slo'", {"ttft", "tpot", "e2el", "attain", "load", "start"}));
  SloTarget slo;
  PINION_ASSIGN(slo.limits.ttft_s, ToLimit(object, "ttft"));
  PINION_ASSIGN(slo.limits.tpot_s, ToLimit(object, "tpot"));
  PINION_ASSIGN(slo.limits.e2el_s, ToLimit(object, "e2el"));
  if (!slo.limits.any())
    return Fail(ErrorCode::kUsage, "'slo' needs a limit: 'ttft', 'tpot' or 'e2el', as \"500ms\"");
  if (const Json* load = object.Find("load")) {
    PINION_ASSIGN(const std::string kind, ToText(*load, "'load' in 'slo'"));
    if (kind != "rate" && kind != "concurrency")
      return Fail(ErrorCode::kUsage,
                  StrCat("'load' in 'slo' must be rate or concurrency, not ", kind));
    slo.by_rate = kind == "rate";
  }
  PINION_TRY(ReadNumber(object, "attain", slo.attain));
  PINION_TRY(ReadNumber(object, "start", slo.start));
  if (!(slo.attain > 0 && slo.attain <= 1) || !(slo.start > 0))
    return Fail(ErrorCode::kUsage,
                "in 'slo', 'attain' must be above 0 and at most 1, and 'start' above 0");
  return slo;
}

Json SloJson(const SloTarget& slo) {
  Json object = Json::MakeObject();
  for (const auto& [key, limit] :
       {std::pair("ttft", slo.limits.ttft_s), std::pair("tpot", slo.limits.tpot_s),
        std::pair("e2el", slo.limits.e2el_s)})
    if (limit) object.Set(key, *limit);
  object.Set("attain", slo.attain);
  object.Set("load", slo.by_rate ? "rate" : "concurrency");
  object.Set("start", slo.start);
  return object;
}

// What the name stands for; keys beside it may say otherwise.
Status TakeNamed(const std::string& name, Workload& workload) {
  PINION_ASSIGN(const WorkloadShape shape, FindWorkload(name));
  workload.name = name;
  workload.prompt_len = static_cast<int>(shape.prompt.Median());
  workload.output_len = static_cast<int>(shape.output.Median());
  workload.shared_prefix = shape.shared_prefix;
  workload.prefixes = shape.prefixes;
  workload.turns = shape.turns;
  return {};
}

Status Validate(const Workload& workload) {
  PINION_TRY(CheckRange("prompt_len", workload.prompt_len, 1, kMaxTokens));
  // Two tokens at least, or there is no time per token after the first.
  PINION_TRY(CheckRange("output_len", workload.output_len, 2, kMaxTokens));
  PINION_TRY(CheckRange("num_prompts", workload.num_prompts, 1, kMaxTokens));
  PINION_TRY(CheckRange("shared_prefix", workload.shared_prefix, 0, kMaxTokens));
  PINION_TRY(CheckRange("prefixes", workload.prefixes, 1, kMaxClients));
  PINION_TRY(CheckRange("turns", workload.turns, 1, kMaxClients));
  for (int clients : workload.concurrency)
    PINION_TRY(CheckRange("concurrency", clients, 1, kMaxClients));
  const std::set<int> unique(workload.concurrency.begin(), workload.concurrency.end());
  if (unique.size() != workload.concurrency.size())
    return Fail(ErrorCode::kUsage, "'concurrency' names one value twice");
  return {};
}

template <typename T>
void SetList(Json& object, const char* key, const std::vector<T>& list) {
  if (!list.empty()) object.Set(key, Json(list));
}

Json ToJson(const Space& space) {
  Json object = Json::MakeObject();
  SetList(object, "threads_bind", space.threads_bind);
  SetList(object, "reserved_cpus", space.reserved_cpus);
  SetList(object, "kv_cache_space", space.kv_cache_space_gib);
  SetList(object, "tensor_parallel", space.tensor_parallel);
  SetList(object, "isa", space.isa);
  SetList(object, "dtype", space.dtype);
  SetList(object, "activations", space.activations);
  SetList(object, "head_dtype", space.head_dtype);
  SetList(object, "kv_cache_dtype", space.kv_cache_dtype);
  SetList(object, "max_num_batched_tokens", space.max_num_batched_tokens);
  SetList(object, "max_num_seqs", space.max_num_seqs);
  SetList(object, "allocator", space.allocator);
  SetList(object, "openmp", space.openmp);
  SetList(object, "huge_pages", space.huge_pages);
  return object;
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
  for (Strategy strategy :
       {Strategy::kRacing, Strategy::kGrid, Strategy::kRandom, Strategy::kCoordinate})
    if (name == Name(strategy)) return strategy;
  return Fail(ErrorCode::kUsage,
              StrCat("unknown strategy '", name, "'; known are racing, grid, random, coordinate"));
}

Result<Objective> ParseObjective(const std::string& name) {
  for (Objective objective : AllObjectives())
    if (name == Name(objective)) return objective;
  std::vector<std::string> known;
  for (Objective objective : AllObjectives()) known.push_back(Name(objective));
  return Fail(ErrorCode::kUsage,
              StrCat("unknown objective '", name, "'; known are ", Join(known, ", ")));
}

Status FromJson(const Json& object, Workload& workload) {
  PINION_TRY(CheckKeys(object, "'workload'",
                       {"name", "prompt_len", "output_len", "concurrency", "num_prompts",
                        "shared_prefix", "prefixes", "turns", "slo"}));
  if (const Json* name = object.Find("name")) {
    PINION_ASSIGN(const std::string text, ToText(*name, "'name' in 'workload'"));
    PINION_TRY(TakeNamed(text, workload));
  }
  if (const Json* slo = object.Find("slo")) {
    PINION_ASSIGN(workload.slo, ToSlo(*slo));
  }
  PINION_TRY(ReadInt(object, "shared_prefix", workload.shared_prefix));
  PINION_TRY(ReadInt(object, "prefixes", workload.prefixes));
  PINION_TRY(ReadInt(object, "turns", workload.turns));
  PINION_TRY(ReadInt(object, "prompt_len", workload.prompt_len));
  PINION_TRY(ReadInt(object, "output_len", workload.output_len));
  PINION_TRY(ReadInt(object, "num_prompts", workload.num_prompts));
  PINION_TRY(ReadList(object, "concurrency", ToInt, workload.concurrency));
  return Validate(workload);
}

Status FromJson(const Json& object, Definition& definition) {
  PINION_TRY(
      CheckKeys(object, "the sweep definition",
                {"$schema", "engine", "space", "candidates", "workload", "objectives",
                 "constraints", "budget", "rounds", "seed", "trial_limit", "strategy", "epsilon",
                 "cores_within", "random_points", "restarts", "divergence_limit_nats"}));
  if (const Json* engine = object.Find("engine")) {
    PINION_ASSIGN(definition.engine, ReadEngineChoice(*engine));
  }
  if (const Json* space = object.Find("space")) PINION_TRY(FromJson(*space, definition.space));
  PINION_TRY(ReadCandidates(object, definition.candidates));
  if (const Json* workload = object.Find("workload"))
    PINION_TRY(FromJson(*workload, definition.workload));
  const auto to_objective = [](const Json& value, const std::string& what) -> Result<Objective> {
    PINION_ASSIGN(const std::string name, ToText(value, what));
    return ParseObjective(name);
  };
  PINION_TRY(ReadList(object, "objectives", to_objective, definition.objectives));
  if (const Json* constraints = object.Find("constraints"))
    PINION_TRY(FromJson(*constraints, definition.constraints));
  PINION_TRY(ReadSeconds(object, "budget", definition.budget_s));
  if (object.Find("trial_limit"))
    PINION_TRY(ReadSeconds(object, "trial_limit", definition.trial_limit_s.emplace()));
  PINION_TRY(ReadInt(object, "rounds", definition.rounds));
  PINION_TRY(ReadInt(object, "random_points", definition.random_points));
  PINION_TRY(ReadInt(object, "restarts", definition.restarts));
  if (const Json* strategy = object.Find("strategy")) {
    PINION_ASSIGN(const std::string name, ToText(*strategy, "'strategy'"));
    PINION_ASSIGN(definition.strategy, ParseStrategy(name));
  }
  PINION_TRY(ReadNumber(object, "epsilon", definition.epsilon));
  PINION_TRY(ReadNumber(object, "cores_within", definition.cores_within));
  PINION_TRY(ReadNumber(object, "divergence_limit_nats", definition.divergence_limit_nats));
  if (const Json* seed = object.Find("seed")) {
    if (!seed->is_int() || seed->integer() < 0)
      return Fail(ErrorCode::kUsage,
                  StrCat("'seed' must be an integer of at least 0, not ", seed->Dump()));
    definition.seed = static_cast<uint64_t>(seed->integer());
  }
  return Validate(definition);
}

Status Validate(const Definition& definition) {
  PINION_TRY(Validate(definition.workload));
  PINION_TRY(CheckRange("rounds", definition.rounds, 1, kMaxRounds));
  PINION_TRY(CheckRange("random_points", definition.random_points, 2, kMaxRounds));
  PINION_TRY(CheckRange("restarts", definition.restarts, 0, kMaxRounds));
  for (const auto& [key, fraction] : {std::pair("epsilon", definition.epsilon),
                                      std::pair("cores_within", definition.cores_within)})
    if (!(fraction >= 0.001 && fraction <= 0.5))
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' is ", fraction, "; it must be a fraction from 0.001 to 0.5"));
  if (!(definition.divergence_limit_nats >= 0))
    return Fail(ErrorCode::kUsage,
                StrCat("'divergence_limit_nats' is ", definition.divergence_limit_nats,
                       "; it must be 0 or more nats a token"));
  if (!(definition.budget_s > 0) || !(definition.trial_limit_s.value_or(1) > 0))
    return Fail(ErrorCode::kUsage, "'budget' and 'trial_limit' must be above 0 seconds");
  const std::set<Objective> unique(definition.objectives.begin(), definition.objectives.end());
  if (unique.empty() || unique.size() != definition.objectives.size())
    return Fail(ErrorCode::kUsage, "'objectives' must name at least one objective and none twice");
  const auto& clients = definition.workload.concurrency;
  const bool needs_one = unique.count(Objective::kLatency) || unique.count(Objective::kBalanced);
  if (needs_one && std::find(clients.begin(), clients.end(), 1) == clients.end())
    return Fail(ErrorCode::kUsage,
                "objectives 'latency' and 'balanced' are measured at concurrency 1: add 1 to "
                "'concurrency' or ask for 'throughput' alone");
  if (unique.count(Objective::kGoodput) && (!definition.workload.slo || clients.empty()))
    return Fail(
        ErrorCode::kUsage,
        "objective 'goodput' counts requests that meet an SLO: give --slo "
        "ttft=500ms,tpot=100ms, or 'slo' in the definition's 'workload', and 'concurrency'");
  return {};
}

Json ToJson(const Workload& workload) {
  Json object = Json::MakeObject();
  object.Set("prompt_len", workload.prompt_len);
  object.Set("output_len", workload.output_len);
  object.Set("concurrency", Json(workload.concurrency));
  object.Set("num_prompts", workload.num_prompts);
  if (!workload.name.empty()) object.Set("name", workload.name);
  if (workload.shared_prefix > 0) {
    object.Set("shared_prefix", workload.shared_prefix);
    object.Set("prefixes", workload.prefixes);
  }
  if (workload.turns > 1) object.Set("turns", workload.turns);
  if (workload.slo) object.Set("slo", SloJson(*workload.slo));
  return object;
}

Json ToJson(const Definition& definition) {
  Json object = Json::MakeObject();
  if (!definition.engine.is_pinion()) object.Set("engine", ToJson(definition.engine));
  object.Set("space", ToJson(definition.space));
  if (!definition.candidates.empty()) object.Set("candidates", Json(definition.candidates));
  object.Set("workload", ToJson(definition.workload));
  Json objectives = Json::MakeArray();
  for (Objective objective : definition.objectives) objectives.Append(Name(objective));
  object.Set("objectives", std::move(objectives));
  if (definition.constraints.any()) object.Set("constraints", ToJson(definition.constraints));
  object.Set("budget", definition.budget_s);
  object.Set("rounds", definition.rounds);
  object.Set("divergence_limit_nats", definition.divergence_limit_nats);
  object.Set("seed", definition.seed);
  object.Set("strategy", Name(definition.strategy));
  object.Set("epsilon", definition.epsilon);
  const auto& asked = definition.objectives;
  if (std::find(asked.begin(), asked.end(), Objective::kCores) != asked.end())
    object.Set("cores_within", definition.cores_within);
  if (definition.strategy == Strategy::kRandom)
    object.Set("random_points", definition.random_points);
  if (definition.strategy == Strategy::kCoordinate) object.Set("restarts", definition.restarts);
  if (definition.trial_limit_s) object.Set("trial_limit", *definition.trial_limit_s);
  return object;
}

}  // namespace pinion::harness
