#include "harness/space/definition.h"

#include <algorithm>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "harness/space/json_fields.h"
#include "harness/space/own_settings.h"

namespace pinion::harness {
namespace {

// Limits that catch mistaken units; they are far above any real load.
constexpr double kGib = 1 << 30;

// "unknown setting ..." unless the key is a setting that may vary, or an engine's own.
Status CheckAxisKey(const std::string& key) {
  const SettingRow* row = FindSetting(key);
  if (IsOwnKey(key) || (row && row->varies)) return {};
  std::vector<std::string> known;
  for (const SettingRow& one : SettingRows())
    if (one.varies) known.push_back(one.key);
  return Fail(ErrorCode::kUsage,
              StrCat("unknown key '", key, "' in 'axes'; known are ", Join(known, ", "),
                     ", and of an engine's own env.NAME and its flags, such as --max-num-seqs"));
}

Result<Json> ReadAxisValue(const std::string& key, const Json& item) {
  if (const SettingRow* row = FindSetting(key))
    return ReadSetting(*row, item, StrCat("a value of '", key, "'"));
  PINION_TRY(ReadOwnSetting(key, item));
  return item;
}

Status ReadAxes(const Json& value, Definition& definition) {
  if (!value.is_object())
    return Fail(ErrorCode::kUsage, StrCat("'axes' must be an object, not ", value.type_name()));
  PINION_TRY(CheckNoneTwice(value, "'axes'"));
  Axes axes;
  for (const auto& [key, list] : value.object()) {
    PINION_TRY(CheckAxisKey(key));
    if (!list.is_array() || list.array().empty())
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' must be a list of at least one value, not ", Excerpt(list)));
    std::vector<Json> values;
    for (const Json& item : list.array()) {
      PINION_ASSIGN(Json one, ReadAxisValue(key, item));
      values.push_back(std::move(one));
    }
    SetAxis(key, std::move(values), axes);
  }
  definition.axes = std::move(axes);
  return {};
}

// A value as a configuration's text has it, so that "512MiB" matches 0.5 GiB. Text is taken as it
// is if it is not a value of the setting: stored definitions have texts.
Result<std::string> ConditionValue(const std::string& what, const std::string& key,
                                   const Json& value) {
  if (value.is_array() || value.is_object())
    return Fail(ErrorCode::kUsage, StrCat(what, " compares '", key, "' with ", Excerpt(value),
                                          "; give a value, or a list of values such as [1,2]"));
  if (const SettingRow* row = FindSetting(key))
    if (const auto read = ReadSetting(*row, value, key)) return SettingText(*read);
  return value.is_string() ? value.string() : SettingText(value);
}

// {"engine": "vllm", "tensor_parallel": [1, 2]}
Result<std::vector<Condition>> ReadConditions(const std::string& axis, const Json& value) {
  const std::string what = StrCat("'", axis, "' in 'when'");
  if (!value.is_object() || value.object().empty())
    return Fail(
        ErrorCode::kUsage,
        StrCat(what, " must be an object such as {\"engine\":\"vllm\"}, not ", Excerpt(value)));
  PINION_TRY(CheckNoneTwice(value, what));
  std::vector<Condition> conditions;
  for (const auto& [key, wanted] : value.object()) {
    if (key != "engine") PINION_TRY(CheckAxisKey(key));
    Condition condition{key, {}};
    const std::vector<Json> list = wanted.is_array() ? wanted.array() : std::vector{wanted};
    if (list.empty())
      return Fail(ErrorCode::kUsage, StrCat(what, " needs at least one value of '", key,
                                            "', with which the axis varies, not []"));
    for (const Json& one : list) {
      PINION_ASSIGN(std::string text, ConditionValue(what, key, one));
      condition.values.push_back(std::move(text));
    }
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

Status ReadWhen(const Json& value, Definition& definition) {
  if (!value.is_object())
    return Fail(ErrorCode::kUsage, StrCat("'when' must be an object, not ", value.type_name()));
  PINION_TRY(CheckNoneTwice(value, "'when'"));
  for (const auto& [key, conditions] : value.object()) {
    const Axis* found = FindAxis(definition.axes, key);
    if (!found)
      return Fail(ErrorCode::kUsage, StrCat("'when' names '", key, "', which is not in 'axes'"));
    Axis& axis = definition.axes[static_cast<size_t>(found - definition.axes.data())];
    PINION_ASSIGN(axis.when, ReadConditions(key, conditions));
  }
  return {};
}

Json WriteWhen(const Definition& definition) {
  Json when = Json::MakeObject();
  for (const Axis& axis : definition.axes) {
    Json conditions = Json::MakeObject();
    for (const Condition& one : axis.when) conditions.Set(one.key, Json(one.values));
    if (!axis.when.empty()) when.Set(axis.key, std::move(conditions));
  }
  return when.object().empty() ? Json() : when;
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

Status ReadEngines(const Json& value, Definition& definition) {
  if (!value.is_array() || value.array().empty())
    return Fail(ErrorCode::kUsage,
                StrCat("'engines' must be a list of at least one engine, not ", Excerpt(value)));
  definition.engines.clear();
  for (const Json& one : value.array()) {
    PINION_ASSIGN(EngineChoice engine, ReadEngineChoice(one));
    definition.engines.push_back(std::move(engine));
  }
  return {};
}

// Pinion alone, as it is, needs no mention.
Json WriteEngines(const Definition& definition) {
  const EngineChoice& first = definition.engines.front();
  if (definition.engines.size() == 1 && ToJson(first) == ToJson(EngineChoice())) return Json();
  Json list = Json::MakeArray();
  for (const EngineChoice& engine : definition.engines) list.Append(ToJson(engine));
  return list;
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
                         Excerpt(point)));
    PINION_TRY(CheckNoneTwice(point, "one of 'candidates'"));
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
                StrCat("'seed' must be an integer of at least 0, not ", Excerpt(value)));
  definition.seed = static_cast<uint64_t>(value.integer());
  return {};
}

template <Strategy kStrategy>
bool Searches(const Definition& definition) {
  return definition.strategy == kStrategy;
}

bool Asks(const Definition& definition, Objective objective) {
  const auto& asked = definition.objectives;
  return std::find(asked.begin(), asked.end(), objective) != asked.end();
}

bool HasCores(const Definition& definition) { return Asks(definition, Objective::kCores); }

const JsonFields<Definition>& DefinitionFields() {
  static const JsonFields<Definition> fields = {
      {"$schema", [](const Json&, Definition&) { return Status(); },
       [](const Definition&) { return Json(); }},
      {"engines", ReadEngines, WriteEngines},
      {"axes", ReadAxes, [](const Definition& one) { return ToJson(one.axes); }},
      {"when", ReadWhen, WriteWhen},
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
      Maybe("price_per_hour", &Definition::price_per_hour, ToNumber),
      Maybe("price_per_kwh", &Definition::price_per_kwh, ToNumber),
      OnlyIf(Searches<Strategy::kRandom>,
             Value("random_points", &Definition::random_points, ToInt)),
      OnlyIf(Searches<Strategy::kCoordinate>, Value("restarts", &Definition::restarts, ToInt)),
      Maybe("trial_limit", &Definition::trial_limit_s, ToSeconds),
  };
  return fields;
}

}  // namespace

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
  if (const Axis* old = FindAxis(axes, key)) {
    axes[static_cast<size_t>(old - axes.data())].values = std::move(values);
    return;
  }
  const auto place = [](std::string_view of) {
    const auto& rows = SettingRows();
    return std::find_if(rows.begin(), rows.end(),
                        [&](const SettingRow& row) { return row.key == of; }) -
           rows.begin();
  };
  const auto next = std::find_if(axes.begin(), axes.end(),
                                 [&](const Axis& one) { return place(one.key) > place(key); });
  axes.insert(next, {std::string(key), std::move(values)});
}

const EngineChoice& EngineNamed(const Definition& definition, std::string_view name) {
  const auto found = std::find_if(definition.engines.begin(), definition.engines.end(),
                                  [&](const EngineChoice& engine) { return engine.name == name; });
  return found == definition.engines.end() ? definition.engines.front() : *found;
}

Status FromJson(const Json& object, Definition& definition) {
  PINION_TRY(CheckTexts(object));
  PINION_TRY(ReadFields(object, "the sweep definition", DefinitionFields(), definition));
  return Validate(definition);
}

Json ToJson(const Definition& definition) { return WriteFields(DefinitionFields(), definition); }

}  // namespace pinion::harness
