#include "harness/space/expand.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"
#include "harness/space/conditions.h"
#include "harness/space/own_settings.h"
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
// settings of placement, and the selection of `auto` for the name itself.
std::string EffectiveKey(const Point& point, const Host& host, const DecoderSpec& model) {
  Configuration effective = point.configuration;
  EngineOptions& options = effective.options;
  options.isa = ResolvedIsa(options, host);
  if (options.dtype == "auto") options.dtype = model.checkpoint_dtype;
  options.kv_cache_dtype = kernels::Name(KvDtypeOf(options, model));
  Json key = ToJson(point.plan);
  key.Set("reasons", Json());
  key.Set("warnings", Json());
  key.Set("engine", point.engine);
  for (const Setting& setting : point.settings)
    if (IsOwnKey(setting.key)) key.Set(setting.key, setting.value);
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
    EngineOptions options = configuration.options;
    if (!is_pinion_) options.share_weights = "off";  // theirs do not
    PINION_ASSIGN(const PlannedModel* model, ModelOf(options));
    Status fits = CheckReplicasFit(options, configuration.replicas, *model, host_.machine,
                                   host_.budget, plan);
    if (fits || configuration.replicas == 1) return fits;
    return Unexpected(std::move(fits).error().In(StrCat(configuration.replicas, " replicas")));
  }

  Result<const PlannedModel*> ModelOf(const EngineOptions& options) {
    const auto [found, is_new] =
        models_.try_emplace({options.dtype, options.activations, options.head_dtype});
    if (is_new) found->second = PlanModel(options);
    if (!found->second) return Unexpected(Error(found->second.error()));
    return &*found->second;
  }

  const Host& host_;
  bool is_pinion_;
  std::map<std::array<std::string, 3>, Result<PlannedModel>> models_;
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
  PINION_TRY(CheckPrefillReplicas(options, configuration.replicas, configuration.prefill_replicas));
  PINION_ASSIGN(Plan plan,
                PlanReplicas(options, configuration.replicas, host.machine, host.budget));
  PINION_TRY(memory(configuration, plan));
  const int cores = plan.total_threads();
  if (cores > constraints.cores.value_or(cores))
    return Fail(ErrorCode::kUnsupported, StrCat("disqualified: it uses ", cores, " cores, and the ",
                                                "constraint allows ", *constraints.cores));
  return plan;
}

using Combined = std::vector<std::vector<Setting>>;

// The points of one engine.
class EngineSpace {
 public:
  EngineSpace(const Definition& definition, const EngineChoice& engine, const EngineOptions& base,
              const Host& host)
      : definition_(definition), engine_(engine), base_{base}, host_(host), memory_(host, engine) {
    if (!engine.model.empty()) base_.options.model = engine.model;
    start_ = base_;
    const auto settings = SettingsOf(engine.settings);
    CHECK(settings);  // ReadEngineChoice has read them
    own_ = *settings;
    for (const Setting& setting : own_) (void)Apply(setting, start_);
    std::erase_if(own_, [](const Setting& setting) { return !IsOwnKey(setting.key); });
  }

  Point Make(const std::vector<Setting>& settings) {
    Point point;
    point.engine = engine_.name;
    point.configuration = start_;
    for (const Setting& setting : settings) (void)Apply(setting, point.configuration);
    point.settings = Difference(base_, point.configuration);
    point.settings.insert(point.settings.end(), own_.begin(), own_.end());
    for (const Setting& setting : settings)
      if (IsOwnKey(setting.key)) point.settings.push_back(setting);
    point.label = Label(point.settings);
    if (IsRace()) point.label = StrCat(engine_.name, ": ", point.label);
    point.infeasible = Foreign(point);
    if (!point.infeasible.empty()) return point;
    if (auto plan = Check(point.configuration, host_, definition_.constraints, memory_))
      point.plan = std::move(*plan);
    else
      point.infeasible = plan.error().message;
    return point;
  }

  // Every combination of one setting per axis, the last axis changing fastest, and the candidates.
  // If there are more than a search by proposals can have, that many are drawn. Adds the axes that
  // varied to `varied`.
  Result<Combined> Combinations(const Axes& axes, std::set<std::string>& varied) const {
    const size_t most = MostPoints(definition_.strategy);
    PINION_ASSIGN(Combined combinations, Grid(axes, most, varied));
    if (combinations.size() > most && definition_.strategy != Strategy::kTpe)
      return Fail(ErrorCode::kUsage,
                  StrCat("the space has more than ", most, " combinations; give fewer values per ",
                         "setting, or search ", MostPoints(Strategy::kTpe),
                         " of them with --strategy tpe"));
    if (combinations.size() > most) {
      PINION_ASSIGN(combinations, Drawn(axes, most, varied));
      // A condition that no drawn combination meets may still hold for others.
      for (const Axis& axis : axes)
        if (MayApply(axis, axes)) varied.insert(axis.key);
    }
    for (const Json& listed : definition_.candidates) {
      PINION_ASSIGN(std::vector<Setting> settings, SettingsOf(listed));
      if (IsFor(listed, settings)) combinations.push_back(std::move(settings));
    }
    return combinations;
  }

 private:
  bool IsRace() const { return definition_.engines.size() > 1; }

  // The setting that the engine lacks, as a sentence; empty if it has all.
  std::string Foreign(const Point& point) const {
    for (const Setting& setting : point.settings) {
      const SettingRow* row = FindSetting(setting.key);
      if (row && !HasValue(engine_, *row, row->get(point.configuration)))
        return StrCat(engine_.name, " has no setting for ", setting.key, "=", setting.value,
                      row->is_of_server ? "; it has no flag for several replicas behind one port: "
                                          "leave the axis out for it, or put servers of it behind "
                                          "a proxy and measure that with `pinion load`"
                                        : "");
    }
    return "";
  }

  // All combinations; if there are more than `most`, some of them, but more than `most`.
  Result<Combined> Grid(const Axes& axes, size_t most, std::set<std::string>& varied) const {
    Combined combinations;
    if (!axes.empty()) combinations.emplace_back();
    for (const Axis& axis : axes) {
      Combined longer;
      for (std::vector<Setting>& prefix : combinations) {
        if (longer.size() > most) return longer;
        if (!Applies(axis, prefix)) {
          longer.push_back(std::move(prefix));
          continue;
        }
        varied.insert(axis.key);
        for (const Json& value : axis.values) {
          longer.push_back(prefix);
          PINION_TRY(Add(axis, value, longer.back()));
        }
      }
      combinations = std::move(longer);
    }
    return combinations;
  }

  // `count` different combinations, drawn by the sweep's seed, every value of an axis as likely as
  // another. Fewer if conditions leave hardly more.
  Result<Combined> Drawn(const Axes& axes, size_t count, std::set<std::string>& varied) const {
    constexpr size_t kTries = 4;  // for each
    std::mt19937_64 random(definition_.seed);
    std::set<std::string> seen;
    Combined drawn;
    for (size_t tries = 0; drawn.size() < count && tries < kTries * count; ++tries) {
      std::vector<Setting> one;
      for (const Axis& axis : axes) {
        if (!Applies(axis, one)) continue;
        PINION_TRY(Add(axis, axis.values[random() % axis.values.size()], one));
        varied.insert(axis.key);
      }
      if (seen.insert(Label(one)).second) drawn.push_back(std::move(one));
    }
    return drawn;
  }

  static Status Add(const Axis& axis, const Json& value, std::vector<Setting>& settings) {
    std::optional<Setting> one = Setting{axis.key, SettingText(value)};
    if (IsOwnKey(axis.key)) {
      PINION_ASSIGN(one, ReadOwnSetting(axis.key, value));
    }
    if (one) settings.push_back(std::move(*one));
    return {};
  }

  // The value of a setting within a combination; nullopt if nothing sets it.
  std::optional<std::string> ValueOf(const std::string& key,
                                     const std::vector<Setting>& prefix) const {
    if (key == "engine") return engine_.name;
    for (const Setting& setting : prefix)
      if (setting.key == key) return setting.value;
    const SettingRow* row = FindSetting(key);
    return row ? std::optional(SettingText(row->get(start_))) : std::nullopt;
  }

  bool Applies(const Axis& axis, const std::vector<Setting>& prefix) const {
    for (const Condition& condition : axis.when) {
      const auto value = ValueOf(condition.key, prefix);
      if (!value || std::find(condition.values.begin(), condition.values.end(), *value) ==
                        condition.values.end())
        return false;
    }
    if (!IsRace()) return true;
    if (!IsOwnKey(axis.key)) return HasSetting(engine_, axis.key);
    const bool names_engine =
        std::any_of(axis.when.begin(), axis.when.end(),
                    [](const Condition& condition) { return condition.key == "engine"; });
    return names_engine || !engine_.is_pinion();
  }

  // Whether every condition of the axis can be met, each by itself.
  bool MayApply(const Axis& axis, const Axes& axes) const {
    return std::all_of(axis.when.begin(), axis.when.end(), [&](const Condition& condition) {
      std::vector<Setting> possible;
      const Axis* named = FindAxis(axes, condition.key);
      for (const Json& value : named ? named->values : std::vector<Json>())
        (void)Add(*named, value, possible);  // reading the definition has checked them
      if (const auto usual = ValueOf(condition.key, {}))
        possible.push_back({condition.key, *usual});
      return std::any_of(possible.begin(), possible.end(), [&](const Setting& one) {
        return std::find(condition.values.begin(), condition.values.end(), one.value) !=
               condition.values.end();
      });
    });
  }

  // A listed candidate that names no engine is for those that have its settings.
  bool IsFor(const Json& listed, const std::vector<Setting>& settings) const {
    if (const Json* name = listed.Find("engine")) return name->string() == engine_.name;
    return !IsRace() || std::all_of(settings.begin(), settings.end(), [&](const Setting& setting) {
      return IsOwnKey(setting.key) ? !engine_.is_pinion() : HasSetting(engine_, setting.key);
    });
  }

  const Definition& definition_;
  const EngineChoice& engine_;
  Configuration base_, start_;  // the sweep's; with the engine's settings
  std::vector<Setting> own_;    // of those, the engine's own
  const Host& host_;
  MemoryCheck memory_;
};

// Points, those that run identically merged into the first of them.
class PointList {
 public:
  void Add(Point point, const Host& host, const DecoderSpec& model) {
    const std::string key = point.infeasible.empty() ? EffectiveKey(point, host, model)
                                                     : StrCat("infeasible ", point.label);
    const auto [twin, is_new] = places_.try_emplace(key, points_.size());
    if (is_new) {
      points_.push_back(std::move(point));
      return;
    }
    Point& first = points_[twin->second];
    const bool known =
        point.label == first.label ||
        std::find(first.same_as.begin(), first.same_as.end(), point.label) != first.same_as.end();
    if (!known) first.same_as.push_back(point.label);
  }

  std::vector<Point> Take() { return std::move(points_); }

 private:
  std::vector<Point> points_;
  std::unordered_map<std::string, size_t> places_;  // by EffectiveKey
};

// The model in the engine's own format; one that Pinion cannot read has no spec.
DecoderSpec SpecOf(const EngineChoice& engine, const DecoderSpec& model) {
  if (engine.model.empty()) return model;
  const auto files = FindModel(engine.model);
  return files ? files->spec : DecoderSpec();
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
  PointList points;
  PINION_ASSIGN(const Axes axes, BehindTheirConditions(definition.axes));
  std::set<std::string> varied;
  for (const EngineChoice& engine : definition.engines) {
    const DecoderSpec own = SpecOf(engine, model);
    EngineSpace space(definition, engine, base, host);
    Point defaults = space.Make({});
    if (!defaults.infeasible.empty() && &engine == &definition.engines.front())
      return Fail(ErrorCode::kUsage, StrCat("the defaults cannot run here: ", defaults.infeasible));
    points.Add(std::move(defaults), host, own);
    PINION_ASSIGN(const auto combinations, space.Combinations(axes, varied));
    for (const std::vector<Setting>& settings : combinations)
      points.Add(space.Make(settings), host, own);
  }
  PINION_TRY(CheckConditionsHold(axes, varied));
  std::vector<Point> all = points.Take();
  if (definition.strategy == Strategy::kPair && all.size() != 2)
    return Fail(
        ErrorCode::kUsage,
        StrCat("strategy pair compares two configurations, the baseline and one other; this "
               "space has ",
               all.size(), ": change the space, or use --strategy racing"));
  return all;
}

}  // namespace pinion::harness
