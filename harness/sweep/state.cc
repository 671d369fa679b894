#include "harness/sweep/state.h"

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

constexpr char kTrialLimit[] = "trial_limit_s";

Result<Json> RequiredMeta(Store& store, const std::string& key) {
  PINION_ASSIGN(std::optional<Json> value, store.Meta(key));
  if (!value)
    return Fail(ErrorCode::kCorrupt, StrCat("the sweep's database lacks '", key,
                                            "': it was killed while it was set up; "
                                            "delete its folder and sweep again"));
  return std::move(*value);
}

Status Different(const std::string& what, const Json& stored, const Json& asked) {
  return Fail(ErrorCode::kUsage,
              StrCat("the sweep to resume has another ", what, ": ", stored.Dump(), " there, ",
                     asked.Dump(), " here; leave that out, or sweep into a new folder"));
}

Status CompareObjects(const std::string& what, const Json& stored, const Json& asked) {
  const auto difference = FirstDifference(stored, asked);
  if (!difference) return {};
  return Different(StrCat(what, " (", difference->what, ")"), difference->first, difference->other);
}

// The circumstances that a trial depends on, beside the definition.
Status CheckCircumstances(const SweepMeta& stored, const SweepMeta& asked) {
  const auto check = [](const char* what, const Json& then, const Json& now) -> Status {
    if (then == now) return {};
    return Fail(ErrorCode::kUsage,
                StrCat("the sweep to resume was measured with another ", what, ": ", then.Dump(),
                       " then, ", now.Dump(), " now; its trials cannot be mixed with new ones: ",
                       "restore that, or sweep into a new folder"));
  };
  PINION_TRY(
      check("set of CPUs", ValueAt(stored.budget, {"cpus"}), ValueAt(asked.budget, {"cpus"})));
  PINION_TRY(check("CPU quota", ValueAt(stored.budget, {"cpu_quota"}),
                   ValueAt(asked.budget, {"cpu_quota"})));
  const auto origin = [&](const char* what, std::initializer_list<const char*> path) {
    return check(what, ValueAt(stored.provenance, path), ValueAt(asked.provenance, path));
  };
  PINION_TRY(origin("pinion (hash of the binary)", {"engine", "binary_hash"}));
  PINION_TRY(origin("model (hash of its files)", {"model", "hash"}));
  PINION_TRY(origin("file of an engine (hashes)", {"engines"}));
  return origin("environment", {"environment"});
}

Json FixedPart(const Definition& definition) {
  Json object = ToJson(definition);
  object.Set("budget", Json());
  object.Set("rounds", Json());
  return object;
}

}  // namespace

Json ValueAt(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = &object;
  for (const char* key : path) at = at ? at->Find(key) : nullptr;
  return at ? *at : Json();
}

std::optional<KeyDifference> FirstDifference(const Json& first, const Json& other) {
  for (const Json* object : {&other, &first})
    for (const auto& [name, ignored] : object->object()) {
      const char* key = name.c_str();
      if (ValueAt(first, {key}) != ValueAt(other, {key}))
        return KeyDifference{name, ValueAt(first, {key}), ValueAt(other, {key})};
    }
  return std::nullopt;
}

Status WriteMeta(Store& store, const SweepMeta& meta) {
  Json origin = Json::MakeObject();
  origin.Set("model", meta.model);
  origin.Set("command_line", meta.command_line);
  origin.Set("version", meta.version);
  origin.Set("commit", meta.commit);
  origin.Set("started_at", meta.started_at);
  PINION_TRY(store.SetMeta("definition", ToJson(meta.definition)));
  PINION_TRY(store.SetMeta("base", ToJson(meta.base)));
  PINION_TRY(store.SetMeta("machine", meta.machine));
  PINION_TRY(store.SetMeta("budget", meta.budget));
  PINION_TRY(store.SetMeta("model_facts", meta.model_facts));
  PINION_TRY(store.SetMeta("predictions", meta.predictions));
  PINION_TRY(store.SetMeta("provenance", meta.provenance));
  PINION_TRY(store.SetMeta("unavailable", Json(meta.unavailable)));
  if (!meta.nodes.is_null()) PINION_TRY(store.SetMeta("nodes", meta.nodes));
  return store.SetMeta("origin", origin);
}

Result<SweepMeta> ReadMeta(Store& store) {
  SweepMeta meta;
  PINION_ASSIGN(const Json definition, RequiredMeta(store, "definition"));
  PINION_TRY(FromJson(definition, meta.definition));
  PINION_ASSIGN(const Json base, RequiredMeta(store, "base"));
  PINION_TRY(FromJson(base, meta.base));
  PINION_ASSIGN(meta.machine, RequiredMeta(store, "machine"));
  PINION_ASSIGN(meta.budget, RequiredMeta(store, "budget"));
  PINION_ASSIGN(meta.model_facts, RequiredMeta(store, "model_facts"));
  PINION_ASSIGN(const std::optional<Json> predictions, store.Meta("predictions"));
  PINION_ASSIGN(const std::optional<Json> provenance, store.Meta("provenance"));
  PINION_ASSIGN(const std::optional<Json> unavailable, store.Meta("unavailable"));
  meta.unavailable = StringsIn(unavailable.value_or(Json()));
  meta.predictions = predictions.value_or(Json());
  meta.provenance = provenance.value_or(Json());
  PINION_ASSIGN(const std::optional<Json> nodes, store.Meta("nodes"));
  meta.nodes = nodes.value_or(Json());
  PINION_ASSIGN(const Json origin, RequiredMeta(store, "origin"));
  meta.model = TextAt(origin, "model");
  meta.command_line = TextAt(origin, "command_line");
  meta.version = TextAt(origin, "version");
  meta.commit = TextAt(origin, "commit");
  meta.started_at = TextAt(origin, "started_at");
  return meta;
}

Status WriteProgress(Store& store, const SweepProgress& progress) {
  Json object = Json::MakeObject();
  object.Set("updated_at", progress.updated_at);
  object.Set("rounds_planned", progress.rounds_planned);
  object.Set("finished", progress.finished);
  return store.SetMeta("progress", object);
}

Result<SweepProgress> ReadProgress(Store& store) {
  SweepProgress progress;
  PINION_ASSIGN(const std::optional<Json> object, store.Meta("progress"));
  if (!object) return progress;
  progress.updated_at = TextAt(*object, "updated_at");
  PINION_ASSIGN(progress.rounds_planned, Require<int>(*object, "rounds_planned"));
  PINION_ASSIGN(progress.finished, Require<bool>(*object, "finished"));
  return progress;
}

Status WriteTrialLimit(Store& store, double limit_s) { return store.SetMeta(kTrialLimit, limit_s); }

Result<std::optional<double>> ReadTrialLimit(Store& store) {
  PINION_ASSIGN(const std::optional<Json> limit_s, store.Meta(kTrialLimit));
  if (!limit_s) return std::optional<double>();
  if (limit_s->is_number() && limit_s->number() > 0) return std::optional(limit_s->number());
  return Fail(ErrorCode::kCorrupt, StrCat("the sweep's database has '", kTrialLimit, "' ",
                                          limit_s->Dump(), ", which must be a number above 0"));
}

Status CheckSame(const SweepMeta& stored, const SweepMeta& asked) {
  if (stored.model != asked.model) return Different("model", stored.model, asked.model);
  PINION_TRY(CompareObjects("configuration", ToJson(stored.base), ToJson(asked.base)));
  PINION_TRY(
      CompareObjects("definition", FixedPart(stored.definition), FixedPart(asked.definition)));
  PINION_TRY(CompareObjects("machine", stored.machine, asked.machine));
  return CheckCircumstances(stored, asked);
}

CandidateRow RowOf(const Point& point, int id) {
  CandidateRow row;
  row.id = id;
  row.label = point.label;
  row.engine = point.engine;
  row.settings = point.settings;
  row.configuration = point.configuration;
  row.is_baseline = id == 0;
  row.cores = point.plan.total_threads();
  row.infeasible = point.infeasible;
  row.same_as = point.same_as;
  return row;
}

std::string NowIso8601() { return UtcNow("%Y-%m-%dT%H:%M:%SZ"); }

std::string Commit() { return PINION_COMMIT; }

}  // namespace pinion::harness
