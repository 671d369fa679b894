#include "harness/cli/sweep_definition.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/run/capacity.h"
#include "engine/run/start.h"
#include "harness/cli/given_file.h"
#include "harness/cli/slo_flag.h"

namespace pinion::harness {
namespace {

// Writes the flags as a definition, so that both are read and checked in one place.
Result<Json> AsDefinition(const SweepFlags& flags) {
  Json asked = Json::MakeObject();
  if (flags.objectives) asked.Set("objectives", Json(*flags.objectives));
  if (flags.price_per_hour) asked.Set("price_per_hour", *flags.price_per_hour);
  if (flags.price_per_kwh) asked.Set("price_per_kwh", *flags.price_per_kwh);
  if (flags.slo) {
    PINION_ASSIGN(Json slo, ReadSloFlag(*flags.slo));
    Json workload = Json::MakeObject();
    workload.Set("slo", std::move(slo));
    asked.Set("workload", std::move(workload));
  }
  Json constraints = Json::MakeObject();
  if (flags.max_memory) constraints.Set("peak_rss", *flags.max_memory);
  if (flags.max_cores) constraints.Set("cores", *flags.max_cores);
  if (!constraints.object().empty()) asked.Set("constraints", std::move(constraints));
  return asked;
}

// The engines of the flags, else of the file, else Pinion.
Result<std::vector<EngineChoice>> EnginesFrom(const SweepFlags& flags, const Json& file) {
  Definition asked;
  if (flags.engines.empty()) {
    const Json* engines = file.Find("engines");
    if (!engines) return asked.engines;
    if (auto read = FromJson(Json(Json::Object{{"engines", *engines}}), asked); !read)
      return Unexpected(std::move(read).error().In(flags.definition_file));
    return asked.engines;
  }
  Json engines = Json::MakeArray();
  for (const std::string& flag : flags.engines) {
    auto one = flag.starts_with('{') ? Json::Parse(flag) : Result<Json>(Json(flag));
    if (!one)
      return Fail(ErrorCode::kUsage, StrCat("--engine '", flag, "' is ", one.error().message));
    engines.Append(std::move(*one));
  }
  PINION_TRY(FromJson(Json(Json::Object{{"engines", std::move(engines)}}), asked));
  return asked.engines;
}

// KV of the load's contexts: of those that the batch or the most clients hold at once. A prefix
// that several share is held once.
Status TakeKv(const EngineOptions& base, const PlannedModel& model, const Workload& workload,
              SpaceContext& context) {
  PINION_ASSIGN(const std::vector<RankNeeds> needs, NeedsFor(base, model));
  const WorkloadShape& shape = workload.load.shape;
  const auto bytes = [&](int tokens) {
    return LargestBlockBytes(needs) * BlocksOfSequence(needs, base, static_cast<size_t>(tokens));
  };
  const int contexts = std::clamp(workload.most_clients(), 1, base.max_num_seqs);
  const int own = shape.turns * (shape.prompt_len() + shape.output_len());
  const bool is_shared = base.prefix_caching && shape.shared_prefix > 0;
  const int prefixes = is_shared ? std::min(shape.prefixes, contexts) : 0;
  const int each = is_shared ? own : shape.shared_prefix + own;
  context.kv_bytes_of_context = bytes(shape.shared_prefix + own);
  context.kv_bytes_of_load = static_cast<uint64_t>(contexts) * bytes(each);
  if (is_shared)
    context.kv_bytes_of_load += static_cast<uint64_t>(prefixes) * bytes(shape.shared_prefix);
  return {};
}

Result<Definition> BuiltIn(const SweepFlags& flags, const EngineOptions& base, const Host& host,
                           const EngineChoice& engine, const Workload& workload) {
  SpaceContext context{engine};
  if (context.engine.is_pinion()) {
    PINION_ASSIGN(const PlannedModel model, PlanModel(base));
    context.has_integers = model.formats.Count(IntegerProduct::kInt8) > 0;
    context.dtype = model.spec.checkpoint_dtype;
    PINION_TRY(TakeKv(base, model, workload, context));
  }
  return flags.quick ? QuickDefinition(host, base, context)
                     : DefaultDefinition(host, base, context);
}

// The load's own flags over `workload`.
Status ApplyLoadFlags(const SweepFlags& flags, Workload& workload) {
  const auto take = [](const auto& flag, auto& field) {
    if (flag) field = *flag;
  };
  if (!flags.workload.empty()) {
    Json named = Json::MakeObject();
    named.Set("name", flags.workload);
    PINION_TRY(FromJson(named, workload));
  }
  take(flags.prompt_len, workload.load.shape.prompt.a);
  take(flags.output_len, workload.load.shape.output.a);
  take(flags.num_prompts, workload.load.num_prompts);
  take(flags.concurrency, workload.concurrency);
  take(flags.request_rate, workload.rates);
  take(flags.batch, workload.batch);
  return {};
}

// The load of the file and the flags, which the built-in space is fitted to.
Result<Workload> LoadFrom(const SweepFlags& flags, const Json& file) {
  Workload workload;
  if (const Json* given = file.Find("workload"))
    if (auto read = FromJson(*given, workload); !read)
      return Unexpected(std::move(read).error().In(flags.definition_file));
  PINION_TRY(ApplyLoadFlags(flags, workload));
  return workload;
}

}  // namespace

Result<Definition> DefinitionFrom(const SweepFlags& flags, const EngineOptions& base,
                                  const Host& host) {
  Json file;
  if (!flags.definition_file.empty()) {
    PINION_ASSIGN(file, ReadGivenJson(flags.definition_file));
  }
  PINION_ASSIGN(std::vector<EngineChoice> engines, EnginesFrom(flags, file));
  PINION_ASSIGN(const Workload workload, LoadFrom(flags, file));
  PINION_ASSIGN(Definition definition, BuiltIn(flags, base, host, engines.front(), workload));
  if (!flags.definition_file.empty()) {
    if (file.Find("axes") || file.Find("candidates")) {
      definition.axes = {};
      definition.candidates.clear();
    }
    if (auto read = FromJson(file, definition); !read)
      return Unexpected(std::move(read).error().In(flags.definition_file));
  }
  definition.engines = std::move(engines);
  return definition;
}

Status ApplyFlags(const SweepFlags& flags, const EngineOptions& base, Definition& definition) {
  const auto take = [](const auto& flag, auto& field) {
    if (flag) field = *flag;
  };
  PINION_TRY(ApplyLoadFlags(flags, definition.workload));
  if (flags.replicas)
    SetAxis("replicas", {flags.replicas->begin(), flags.replicas->end()}, definition.axes);
  take(flags.rounds, definition.rounds);
  take(flags.epsilon, definition.epsilon);
  if (flags.strategy) {
    PINION_ASSIGN(definition.strategy, ParseStrategy(*flags.strategy));
  }
  // Of a pair every round counts, so the budget alone limits them unless a number is given.
  if (definition.strategy == Strategy::kPair && definition.rounds == Definition().rounds &&
      !flags.rounds)
    definition.rounds = kMaxRounds;
  if (flags.budget) {
    PINION_ASSIGN(definition.budget_s, ParseDuration(*flags.budget, "--budget"));
  }
  if (flags.trial_limit) {
    PINION_ASSIGN(definition.trial_limit_s, ParseDuration(*flags.trial_limit, "--trial-limit"));
  }
  if (base.seed != 0) definition.seed = base.seed;
  PINION_ASSIGN(const Json asked, AsDefinition(flags));
  PINION_TRY(FromJson(asked, definition));
  return Validate(definition);
}

}  // namespace pinion::harness
