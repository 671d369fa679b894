#include "harness/space/definition.h"

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "harness/load/conversations.h"
#include "harness/space/json_fields.h"

namespace pinion::harness {
namespace {

// Limits that catch mistaken units; they are far above any real load.
constexpr int kMaxTokens = 1 << 20, kMaxClients = 4096, kMaxRounds = 10'000;
constexpr double kGib = 1 << 30;

Status CheckRange(const char* key, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kUsage,
              StrCat("'", key, "' is ", value, "; it must be from ", low, " to ", high));
}

Status ReadAxes(const Json& value, Definition& definition) {
  std::vector<std::string> known;
  for (const SettingRow& row : SettingRows())
    if (row.varies) known.push_back(row.key);
  PINION_TRY(CheckKeys(value, "'axes'", known));
  Axes axes;
  for (const auto& [key, list] : value.object()) {
    if (!list.is_array() || list.array().empty())
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' must be a list of at least one value, not ", list.Dump()));
    std::vector<Json> values;
    for (const Json& item : list.array()) {
      PINION_ASSIGN(Json one,
                    ReadSetting(*FindSetting(key), item, StrCat("a value of '", key, "'")));
      values.push_back(std::move(one));
    }
    SetAxis(key, std::move(values), axes);
  }
  definition.axes = std::move(axes);
  return {};
}

const JsonFields<Constraints>& ConstraintFields() {
  static const JsonFields<Constraints> fields = {
      {"peak_rss",
       [](const Json& value, Constraints& constraints) -> Status {
         PINION_ASSIGN(const double gib, ToGib(value, "'peak_rss'"));
         constraints.peak_rss_bytes = static_cast<uint64_t>(gib * kGib);
         return {};
       },
       [](const Constraints& constraints) {
         const auto& bytes = constraints.peak_rss_bytes;
         return bytes ? Json(static_cast<double>(*bytes) / kGib) : Json();
       }},
      Maybe("cores", &Constraints::cores, ToInt),
  };
  return fields;
}

// A limit in seconds or as "500ms".
JsonField<SloTarget> Limit(const char* key, std::optional<double> Slo::*member) {
  return {key,
          [=](const Json& value, SloTarget& slo) -> Status {
            const std::string what = StrCat("'", key, "' in 'slo'");
            PINION_ASSIGN(slo.limits.*member, ToSeconds(value, what));
            if (*(slo.limits.*member) > 0) return {};
            return Fail(ErrorCode::kUsage, StrCat(what, " must be above 0 seconds"));
          },
          [=](const SloTarget& slo) {
            return slo.limits.*member ? Json(*(slo.limits.*member)) : Json();
          }};
}

Status ReadLoad(const Json& value, SloTarget& slo) {
  PINION_ASSIGN(const std::string kind, ToText(value, "'load' in 'slo'"));
  if (kind != "rate" && kind != "concurrency")
    return Fail(ErrorCode::kUsage,
                StrCat("'load' in 'slo' must be rate or concurrency, not ", kind));
  slo.by_rate = kind == "rate";
  return {};
}

const JsonFields<SloTarget>& SloFields() {
  static const JsonFields<SloTarget> fields = {
      Limit("ttft", &Slo::ttft_s),
      Limit("tpot", &Slo::tpot_s),
      Limit("e2el", &Slo::e2el_s),
      Value("attain", &SloTarget::attain, ToNumber),
      {"load", ReadLoad,
       [](const SloTarget& slo) { return Json(slo.by_rate ? "rate" : "concurrency"); }},
      Value("start", &SloTarget::start, ToNumber),
  };
  return fields;
}

Status ReadSlo(const Json& value, Workload& workload) {
  SloTarget slo;
  PINION_TRY(ReadFields(value, "'slo'", SloFields(), slo));
  if (!slo.limits.any())
    return Fail(ErrorCode::kUsage,
                "'slo' needs a limit: 'ttft', 'tpot' or 'e2el', such as \"500ms\"");
  if (!(slo.attain > 0 && slo.attain <= 1) || !(slo.start > 0))
    return Fail(ErrorCode::kUsage,
                "in 'slo', 'attain' must be above 0 and at most 1, and 'start' above 0");
  workload.slo = slo;
  return {};
}

// Reads the name's workload first, so that other keys override it.
Status ReadName(const Json& value, Workload& workload) {
  PINION_ASSIGN(const std::string name, ToText(value, "'name' in 'workload'"));
  PINION_ASSIGN(const WorkloadShape shape, FindWorkload(name));
  workload.name = name;
  workload.prompt_len = static_cast<int>(shape.prompt.Median());
  workload.output_len = static_cast<int>(shape.output.Median());
  workload.shared_prefix = shape.shared_prefix;
  workload.prefixes = shape.prefixes;
  workload.turns = shape.turns;
  return {};
}

bool HasPrefix(const Workload& workload) { return workload.shared_prefix > 0; }
bool HasTurns(const Workload& workload) { return workload.turns > 1; }

const JsonFields<Workload>& WorkloadFields() {
  static const JsonFields<Workload> fields = {
      {"name", ReadName,
       [](const Workload& workload) {
         return workload.name.empty() ? Json() : Json(workload.name);
       }},
      Value("prompt_len", &Workload::prompt_len, ToInt),
      Value("output_len", &Workload::output_len, ToInt),
      List("concurrency", &Workload::concurrency, ToInt),
      Value("num_prompts", &Workload::num_prompts, ToInt),
      OnlyIf(HasPrefix, Value("shared_prefix", &Workload::shared_prefix, ToInt)),
      OnlyIf(HasPrefix, Value("prefixes", &Workload::prefixes, ToInt)),
      OnlyIf(HasTurns, Value("turns", &Workload::turns, ToInt)),
      {"slo", ReadSlo,
       [](const Workload& workload) {
         return workload.slo ? WriteFields(SloFields(), *workload.slo) : Json();
       }},
  };
  return fields;
}

Status ReadEngine(const Json& value, Definition& definition) {
  PINION_ASSIGN(definition.engine, ReadEngineChoice(value));
  return {};
}

Status ReadCandidates(const Json& value, Definition& definition) {
  if (!value.is_array())
    return Fail(ErrorCode::kUsage, "'candidates' must be a list of objects of settings");
  definition.candidates.clear();
  for (const Json& point : value.array()) {
    if (!point.is_object() || point.object().empty())
      return Fail(ErrorCode::kUsage,
                  StrCat("each of 'candidates' must be an object of settings, such as "
                         "{\"isa\":\"avx2\"}, not ",
                         point.Dump()));
    definition.candidates.push_back(point);
  }
  return {};
}

Result<Objective> ToObjective(const Json& value, const std::string& what) {
  PINION_ASSIGN(const std::string name, ToText(value, what));
  return ParseObjective(name);
}

Status ReadObjectives(const Json& value, Definition& definition) {
  return ReadList(value, "objectives", ToObjective, definition.objectives);
}

Json WriteObjectives(const Definition& definition) {
  Json names = Json::MakeArray();
  for (const Objective objective : definition.objectives) names.Append(Name(objective));
  return names;
}

Status ReadConstraints(const Json& value, Definition& definition) {
  definition.constraints = {};
  PINION_TRY(ReadFields(value, "'constraints'", ConstraintFields(), definition.constraints));
  if (definition.constraints.cores.value_or(1) > 0) return {};
  return Fail(ErrorCode::kUsage, "'cores' of 'constraints' must be at least 1");
}

Status ReadStrategy(const Json& value, Definition& definition) {
  PINION_ASSIGN(const std::string name, ToText(value, "'strategy'"));
  PINION_ASSIGN(definition.strategy, ParseStrategy(name));
  return {};
}

Status ReadSeed(const Json& value, Definition& definition) {
  if (!value.is_int() || value.integer() < 0)
    return Fail(ErrorCode::kUsage,
                StrCat("'seed' must be an integer of at least 0, not ", value.Dump()));
  definition.seed = static_cast<uint64_t>(value.integer());
  return {};
}

template <Strategy kStrategy>
bool Searches(const Definition& definition) {
  return definition.strategy == kStrategy;
}

bool HasCores(const Definition& definition) {
  const auto& asked = definition.objectives;
  return std::find(asked.begin(), asked.end(), Objective::kCores) != asked.end();
}

const JsonFields<Definition>& DefinitionFields() {
  static const JsonFields<Definition> fields = {
      {"$schema", [](const Json&, Definition&) { return Status(); },
       [](const Definition&) { return Json(); }},
      {"engine", ReadEngine,
       [](const Definition& one) { return one.engine.is_pinion() ? Json() : ToJson(one.engine); }},
      {"axes", ReadAxes, [](const Definition& one) { return ToJson(one.axes); }},
      {"candidates", ReadCandidates,
       [](const Definition& one) {
         return one.candidates.empty() ? Json() : Json(one.candidates);
       }},
      {"workload", [](const Json& value, Definition& one) { return FromJson(value, one.workload); },
       [](const Definition& one) { return ToJson(one.workload); }},
      {"objectives", ReadObjectives, WriteObjectives},
      {"constraints", ReadConstraints,
       [](const Definition& one) {
         return one.constraints.any() ? WriteFields(ConstraintFields(), one.constraints) : Json();
       }},
      Value("budget", &Definition::budget_s, ToSeconds),
      Value("rounds", &Definition::rounds, ToInt),
      Value("divergence_limit_nats", &Definition::divergence_limit_nats, ToNumber),
      {"seed", ReadSeed, [](const Definition& one) { return Json(one.seed); }},
      {"strategy", ReadStrategy, [](const Definition& one) { return Json(Name(one.strategy)); }},
      Value("epsilon", &Definition::epsilon, ToNumber),
      OnlyIf(HasCores, Value("cores_within", &Definition::cores_within, ToNumber)),
      OnlyIf(Searches<Strategy::kRandom>,
             Value("random_points", &Definition::random_points, ToInt)),
      OnlyIf(Searches<Strategy::kCoordinate>, Value("restarts", &Definition::restarts, ToInt)),
      Maybe("trial_limit", &Definition::trial_limit_s, ToSeconds),
  };
  return fields;
}

Status Validate(const Workload& workload) {
  PINION_TRY(CheckRange("prompt_len", workload.prompt_len, 1, kMaxTokens));
  // At least two tokens: with one there is no time per token after the first.
  PINION_TRY(CheckRange("output_len", workload.output_len, 2, kMaxTokens));
  PINION_TRY(CheckRange("num_prompts", workload.num_prompts, 1, kMaxTokens));
  PINION_TRY(CheckRange("shared_prefix", workload.shared_prefix, 0, kMaxTokens));
  PINION_TRY(CheckRange("prefixes", workload.prefixes, 1, kMaxClients));
  PINION_TRY(CheckRange("turns", workload.turns, 1, kMaxClients));
  for (int clients : workload.concurrency)
    PINION_TRY(CheckRange("concurrency", clients, 1, kMaxClients));
  const std::set<int> unique(workload.concurrency.begin(), workload.concurrency.end());
  if (unique.size() != workload.concurrency.size())
    return Fail(ErrorCode::kUsage, "'concurrency' lists a value twice");
  return {};
}

Status ValidateNumbers(const Definition& definition) {
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
                       "; it must be at least 0 nats per token"));
  if (!(definition.budget_s > 0) || !(definition.trial_limit_s.value_or(1) > 0))
    return Fail(ErrorCode::kUsage, "'budget' and 'trial_limit' must be above 0 seconds");
  return {};
}

// Each objective needs a load that measures it.
Status ValidateObjectives(const Definition& definition) {
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

}  // namespace

Status FromJson(const Json& object, Workload& workload) {
  PINION_TRY(ReadFields(object, "'workload'", WorkloadFields(), workload));
  return Validate(workload);
}

Json ToJson(const Workload& workload) { return WriteFields(WorkloadFields(), workload); }

Json ToJson(const Axes& axes) {
  Json object = Json::MakeObject();
  for (const Axis& axis : axes) object.Set(axis.key, axis.values);
  return object;
}

const Axis* FindAxis(const Axes& axes, std::string_view key) {
  const auto axis =
      std::find_if(axes.begin(), axes.end(), [&](const Axis& one) { return one.key == key; });
  return axis == axes.end() ? nullptr : &*axis;
}

void SetAxis(std::string_view key, std::vector<Json> values, Axes& axes) {
  Axes ordered;
  for (const SettingRow& row : SettingRows())
    if (row.key == key)
      ordered.push_back({row.key, values});
    else if (const Axis* old = FindAxis(axes, row.key))
      ordered.push_back(*old);
  axes = std::move(ordered);
}

Status FromJson(const Json& object, Definition& definition) {
  PINION_TRY(ReadFields(object, "the sweep definition", DefinitionFields(), definition));
  return Validate(definition);
}

Json ToJson(const Definition& definition) { return WriteFields(DefinitionFields(), definition); }

Status Validate(const Definition& definition) {
  PINION_TRY(Validate(definition.workload));
  PINION_TRY(ValidateNumbers(definition));
  return ValidateObjectives(definition);
}

}  // namespace pinion::harness
