#include "harness/sweep/plan.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "engine/run/start.h"
#include "harness/stats/text.h"
#include "harness/sweep/predict.h"

namespace pinion::harness {
namespace {

struct Reason {
  const char *key, *why;
};
constexpr Reason kReasons[] = {
    {"threads_bind", "fewer or other cores may share memory and caches better"},
    {"reserved_cpus",
     "reserved cores are lost to the engine; without them the front end's delays raise tail "
     "latency"},
    {"smt", "siblings share a core's arithmetic, but hide its waits for memory"},
    {"tensor_parallel", "ranks read from their own node, and pay for exchanging results"},
    {"replicas", "replicas exchange nothing, and each reads all of the weights"},
    {"prefill_replicas",
     "long prompts no longer delay tokens; their engines are idle between prompts"},
    {"kv_cache_space", "a smaller cache lets fewer sequences run at once"},
    {"isa", "wider vectors may lower the clock"},
    {"max_num_batched_tokens",
     "short steps keep streams flowing, long ones read weights less often"},
    {"dtype", "another type of the same size has other instructions"},
    {"kv_cache_dtype", "half the bytes a context, if answers stay as they are"},
    {"allocator", "allocations of the front end and of every step"},
    {"openmp", "another runtime starts and parks its threads differently"},
    {"huge_pages", "fewer translations of addresses"}};

const char* WhyTried(const std::string& key) {
  for (const Reason& reason : kReasons)
    if (key == reason.key) return reason.why;
  const SettingRow* row = FindSetting(key);
  return row ? row->help : "a setting of the engine's own";
}

Json SettingsJson(const Point& point) {
  Json settings = Json::MakeObject();
  for (const Setting& setting : point.settings) {
    const SettingRow* row = FindSetting(setting.key);
    settings.Set(setting.key, row ? row->get(point.configuration) : Json(setting.value));
  }
  return settings;
}

Result<Json> Listed(const Point& point, const Definition& definition, const Host& host,
                    const MachineCeilings* ceilings) {
  Json one = Json::Object{
      {"name", point.label}, {"engine", point.engine}, {"settings", SettingsJson(point)}};
  if (!point.same_as.empty()) one.Set("same_as", Json(point.same_as));
  if (!point.infeasible.empty()) {
    one.Set("excluded", point.infeasible);
    return one;
  }
  one.Set("threads", point.plan.total_threads());
  // Engines that wait for each other have no bound of their own.
  const bool has_roles = point.configuration.prefill_replicas > 0;
  if (!ceilings || has_roles || !EngineNamed(definition, point.engine).is_pinion()) return one;
  PINION_ASSIGN(const PlannedModel model, PlanModel(point.configuration.options));
  const auto prediction = Predict(point, model, definition.workload.load, *ceilings, host.machine,
                                  CacheBytes(host.machine));
  if (prediction)
    one.Set("prediction", ToJson(*prediction));
  else
    one.Set("excluded", prediction.error().message);
  return one;
}

// Higher comes first.
double PlaceOf(const Json& one) {
  if (one.Find("excluded")) return -1;
  const Json* prediction = one.Find("prediction");
  return prediction ? prediction->Find("output_tokens_per_s")->number() : 0;
}

void AddValue(const Json& value, std::vector<Json>& values) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

std::string CeilingsText(const Json& ceilings) {
  if (ceilings.is_null())
    return "No predictions without the machine's limits: give --probe FILE, --node-bandwidth or "
           "--memory-channels.\n";
  return StrCat("Predictions are upper limits (", ceilings.Find("from")->string(),
                "): ", Printf("%.4g", ceilings.Find("read_bytes_per_s")->number() * 1e-9),
                " GB/s from memory, ",
                Printf("%.4g", ceilings.Find("core_read_bytes_per_s")->number() * 1e-9),
                " GB/s of one core.\n");
}

std::string CandidateLine(const Json& one) {
  const std::string& name = one.Find("name")->string();
  if (const Json* excluded = one.Find("excluded"))
    return StrCat("  excluded: ", name, ": ", excluded->string(), "\n");
  const Json* prediction = one.Find("prediction");
  if (!prediction) return StrCat("  ", name, "\n");
  return Printf("  %16.4g", prediction->Find("output_tokens_per_s")->number()) +
         Printf("  %16.4g", prediction->Find("ttft_s")->number() * 1e3) +
         Printf("  %14.4g", prediction->Find("tpot_s")->number() * 1e3) + "  " + name + "\n";
}

// How the strategy goes through the candidates if no predictions order them.
const char* HowMeasured(const std::string& strategy) {
  if (strategy == Name(Strategy::kTpe) || strategy == Name(Strategy::kCoordinate))
    return "The search measures some of these, each chosen by the results of those before:\n";
  if (strategy == Name(Strategy::kRandom)) return "A random choice of these is raced:\n";
  return "Every round measures all of these once, in an order drawn anew:\n";
}

}  // namespace

Axes AxesTried(const Definition& definition, const EngineOptions& base) {
  Axes axes = definition.axes;
  for (const Json& listed : definition.candidates) {
    const auto settings = SettingsOf(listed);
    if (!settings) continue;  // Expand has refused it
    const Configuration changed = ConfigurationOf(*settings);
    for (const Setting& setting : *settings) {
      const SettingRow* row = FindSetting(setting.key);
      const Axis* axis = FindAxis(axes, setting.key);
      std::vector<Json> values = axis ? axis->values : std::vector{row ? row->get({base}) : Json()};
      AddValue(row ? row->get(changed) : Json(setting.value), values);
      SetAxis(setting.key, std::move(values), axes);
    }
  }
  return axes;
}

Result<Json> MakeSweepPlan(const Definition& definition, const EngineOptions& base,
                           const Host& host, const std::vector<Point>& points,
                           const MachineCeilings* ceilings) {
  std::vector<Json> candidates;
  for (const Point& point : points) {
    PINION_ASSIGN(Json one, Listed(point, definition, host, ceilings));
    candidates.push_back(std::move(one));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Json& a, const Json& b) { return PlaceOf(a) > PlaceOf(b); });
  return Json::Object{{"model", base.model},
                      {"machine", MachineFingerprint(host.machine)},
                      {"ceilings", ceilings ? ceilings->Facts() : Json()},
                      {"strategy", Name(definition.strategy)},
                      {"axes", ToJson(AxesTried(definition, base))},
                      {"candidates", Json(std::move(candidates))}};
}

std::string RenderSweepPlan(const Json& plan) {
  const Json& ceilings = *plan.Find("ceilings");
  std::string text =
      StrCat("A sweep of ", plan.Find("model")->string(), " on ",
             plan.Find("machine")->Find("cpu_model")->string(), " would try; nothing was run.\n\n");
  for (const auto& [key, values] : plan.Find("axes")->object()) {
    std::vector<std::string> shown;
    for (const Json& value : values.array())
      shown.push_back(value.is_null() ? "unset" : SettingText(value));
    text += StrCat("  ", key, ": ", Join(shown, "; "), "\n      ", WhyTried(key), "\n");
  }
  text += "\n" + CeilingsText(ceilings) +
          (ceilings.is_null()
               ? HowMeasured(plan.Find("strategy")->string())
               : "The most promising are measured first:\n\n"
                 "  tokens/s (batch)  first token [ms]  per token [ms]  configuration\n");
  for (const Json& one : plan.Find("candidates")->array()) text += CandidateLine(one);
  return text;
}

}  // namespace pinion::harness
