#include "harness/space/expand.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/base/strings.h"
#include "engine/run/capacity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
#include "harness/space/settings.h"
#include "kernels/isa.h"
#include "kernels/offered_isas.h"

namespace pinion::harness {
namespace {

kernels::Dtype DtypeOf(const EngineOptions& options, const DecoderSpec& model) {
  return ResolveDtype(options, model).value_or(kernels::Dtype::kBf16);
}

// Parses an option that Validate has checked.
kernels::KvDtype KvDtypeOf(const EngineOptions& options, const DecoderSpec& model) {
  return ResolveKvDtype(options, DtypeOf(options, model)).value();
}

std::string ResolvedIsa(const EngineOptions& options, const Host& host) {
  return options.isa == "auto" ? host.isas.back() : options.isa;
}

// Points with the same key run identically on this machine: the CPUs of the plan stand for the
// settings of placement, and what `auto` selects for the name itself.
std::string EffectiveKey(const Point& point, const Host& host, const DecoderSpec& model) {
  Configuration effective = point.configuration;
  EngineOptions& options = effective.options;
  options.isa = ResolvedIsa(options, host);
  if (options.dtype == "auto") options.dtype = model.checkpoint_dtype;
  options.kv_cache_dtype = kernels::Name(KvDtypeOf(options, model));
  Json key = ToJson(point.plan);
  key.Set("reasons", Json());
  key.Set("warnings", Json());
  for (const SettingRow& row : SettingRows())
    if (!row.is_placement) key.Set(row.key, row.get(effective));
  return key.Dump();
}

// Whether configurations fit into memory, by the engine's own count. Opens the model once for each
// form of its weights.
class MemoryCheck {
 public:
  MemoryCheck(const Host& host, const EngineChoice& engine)
      : host_(host), is_pinion_(engine.is_pinion()) {}

  Status operator()(const Configuration& configuration, const Plan& plan) {
    if (host_.budget.memory_available_bytes == 0) return {};  // unknown
    Status fits = Fits(configuration, plan);
    // Other engines may read models and options that Pinion does not.
    if (!fits && !is_pinion_ && fits.error().code != ErrorCode::kExhausted) return {};
    return fits;
  }

 private:
  Status Fits(const Configuration& configuration, const Plan& plan) {
    const EngineOptions& options = configuration.options;
    PINION_ASSIGN(const DecoderSpec* spec, SpecOf(options));
    PINION_ASSIGN(const size_t length, ResolveModelLength(*spec, options));
    PINION_ASSIGN(const std::vector<RankNeeds> each, NeedsFor(options, *spec));
    std::vector<RankNeeds> needs;
    for (int i = 0; i < configuration.replicas; ++i)
      needs.insert(needs.end(), each.begin(), each.end());
    Status fits = CheckCapacity(needs, options, length, host_.machine, host_.budget, plan);
    if (fits || configuration.replicas == 1) return fits;
    return Unexpected(std::move(fits).error().In(StrCat(configuration.replicas, " replicas")));
  }

  Result<const DecoderSpec*> SpecOf(const EngineOptions& options) {
    const auto [found, is_new] =
        specs_.try_emplace({options.dtype, options.activations, options.head_dtype});
    if (is_new) found->second = SpecFor(options);
    if (!found->second) return Unexpected(Error(found->second.error()));
    return &*found->second;
  }

  const Host& host_;
  bool is_pinion_;
  std::map<std::array<std::string, 3>, Result<DecoderSpec>> specs_;
};

// The engine's own check asks this process's CPU for an ISA path; another machine has its own.
Status ValidateFor(const Host& host, EngineOptions options) {
  if (!host.machine.this_system && kernels::ParseIsa(options.isa)) {
    if (std::find(host.isas.begin(), host.isas.end(), options.isa) == host.isas.end())
      return Fail(ErrorCode::kUnsupported, StrCat("the machine has no ISA path '", options.isa,
                                                  "', but ", Join(host.isas, ", ")));
    options.isa = "auto";
  }
  return Validate(options);
}

Result<Plan> Check(const Configuration& configuration, const Host& host,
                   const Constraints& constraints, MemoryCheck& memory) {
  const EngineOptions& options = configuration.options;
  PINION_TRY(ValidateFor(host, options));
  PINION_TRY(EnvironmentOf(configuration.runtime, host.runtime));
  PINION_ASSIGN(Plan plan,
                PlanReplicas(options, configuration.replicas, host.machine, host.budget));
  PINION_TRY(memory(configuration, plan));
  const int cores = plan.total_threads();
  if (cores > constraints.cores.value_or(cores))
    return Fail(ErrorCode::kUnsupported, StrCat("disqualified: it uses ", cores, " cores, and the ",
                                                "constraint allows ", *constraints.cores));
  return plan;
}

Point MakePoint(const Configuration& configuration, const Configuration& base, const Host& host,
                const Definition& definition, MemoryCheck& memory) {
  Point point;
  point.configuration = configuration;
  point.settings = Difference(base, configuration);
  point.label = Label(point.settings);
  const EngineChoice& engine = definition.engine;
  const auto foreign =
      std::find_if(point.settings.begin(), point.settings.end(), [&](const Setting& setting) {
        const SettingRow& row = *FindSetting(setting.key);
        return !HasValue(engine, row, row.get(configuration));
      });
  if (foreign != point.settings.end()) {
    point.infeasible =
        StrCat(Name(engine.kind), " has no setting for ", foreign->key, "=", foreign->value);
  } else if (auto plan = Check(configuration, host, definition.constraints, memory)) {
    point.plan = std::move(*plan);
  } else {
    point.infeasible = plan.error().message;
  }
  return point;
}

// Every combination of one setting per axis, the last axis changing fastest.
Result<std::vector<std::vector<Setting>>> Combinations(const Definition& definition) {
  std::vector<std::vector<Setting>> combinations;
  if (!definition.axes.empty()) combinations.emplace_back();
  for (const Axis& axis : definition.axes) {
    if (combinations.size() * axis.values.size() > kMaxPoints)
      return Fail(ErrorCode::kUsage, StrCat("the space has more than ", kMaxPoints,
                                            " combinations; give fewer values per setting"));
    std::vector<std::vector<Setting>> longer;
    for (const auto& prefix : combinations) {
      for (const Json& value : axis.values) {
        longer.push_back(prefix);
        longer.back().push_back({axis.key, SettingText(value)});
      }
    }
    combinations = std::move(longer);
  }
  for (const Json& listed : definition.candidates) {
    PINION_ASSIGN(std::vector<Setting> settings, SettingsOf(listed));
    combinations.push_back(std::move(settings));
  }
  return combinations;
}

}  // namespace

Result<Host> Host::This() {
  Host host;
  PINION_ASSIGN(host.machine, ThisMachine());
  PINION_ASSIGN(host.budget, ComputeBudget(host.machine));
  for (kernels::Isa isa : kernels::OfferedIsas().isas) host.isas.emplace_back(kernels::Name(isa));
  host.runtime = RuntimeOffer::Here();
  return host;
}

Result<std::vector<Point>> Expand(const Definition& definition, const EngineOptions& base,
                                  const Host& host, const DecoderSpec& model) {
  const Configuration start = {base};
  MemoryCheck memory(host, definition.engine);
  std::vector<Point> points = {MakePoint(start, start, host, definition, memory)};
  if (!points[0].infeasible.empty())
    return Fail(ErrorCode::kUsage, StrCat("the defaults cannot run here: ", points[0].infeasible));
  std::vector<std::string> keys = {EffectiveKey(points[0], host, model)};
  PINION_ASSIGN(const auto combinations, Combinations(definition));
  for (const std::vector<Setting>& settings : combinations) {
    Configuration configuration = start;
    for (const Setting& setting : settings) PINION_TRY(Apply(setting, configuration));
    Point point = MakePoint(configuration, start, host, definition, memory);
    const std::string key = point.infeasible.empty() ? EffectiveKey(point, host, model)
                                                     : StrCat("infeasible ", point.label);
    const auto twin = std::find(keys.begin(), keys.end(), key);
    if (twin == keys.end()) {
      keys.push_back(key);
      points.push_back(std::move(point));
      continue;
    }
    auto& same_as = points[static_cast<size_t>(twin - keys.begin())].same_as;
    const bool known = point.label == points[static_cast<size_t>(twin - keys.begin())].label ||
                       std::find(same_as.begin(), same_as.end(), point.label) != same_as.end();
    if (!known) same_as.push_back(point.label);
  }
  return points;
}

}  // namespace pinion::harness
