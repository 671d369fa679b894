#include "harness/store/trial_info.h"

#include <string_view>
#include <utility>

#include "engine/base/json_lists.h"
#include "engine/host/read_plan.h"

namespace pinion::harness {
namespace {

// The members that have a key of their own; the others are in `rest`.
template <typename Info, typename Visit>
void EachMember(Info& info, const Visit& visit) {
  visit("isa", info.isa);
  visit("dtype", info.dtype);
  visit("threads", info.threads);
  visit("ranks", info.ranks);
  visit("plan", info.plan);
  visit("command", info.command);
  visit("cut", info.cut);
  visit("quantiles", info.quantiles);
  visit("slo", info.slo);
  visit("no_ceilings_because", info.no_ceilings_because);
  visit("batch_prompts", info.batch_prompts);
  visit("batch_over_s", info.batch_over_s);
  visit("once_s", info.once_s);
  visit("out_of_time_s", info.out_of_time_s);
  visit("waves", info.waves);
  visit("wave_requests", info.wave_requests);
  visit("warm_up_s", info.warm_up_s);
  visit("warm_up_batches", info.warm_up_batches);
  visit("windows", info.windows);
  visit("generator", info.generator);
  visit("ignored_settings", info.ignored_settings);
}

Json Written(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json Written(int number) { return number == 0 ? Json() : Json(number); }
Json Written(const Plan& plan) { return plan.ranks.empty() ? Json() : ToJson(plan); }
Json Written(const std::vector<std::string>& texts) { return texts.empty() ? Json() : Json(texts); }
Json Written(const std::vector<int>& numbers) { return numbers.empty() ? Json() : Json(numbers); }
Json Written(std::optional<double> number) { return number ? Json(*number) : Json(); }

Json Written(const std::vector<Distribution>& distributions) {
  Json list;
  for (const Distribution& one : distributions) {
    Json row = Json::Object{
        {"metric", one.metric}, {"n", static_cast<uint64_t>(one.n)}, {"values", one.quantiles}};
    SetLevel(one.level, row);
    list.Append(std::move(row));
  }
  return list;
}

Json Written(const std::optional<SearchedLevels>& slo) {
  if (!slo) return {};
  Json list = Json::MakeArray();
  for (const auto& [load, level] : slo->levels)
    list.Append(Json::Object{{"load", load},
                             {"good", static_cast<int64_t>(level.good)},
                             {"total", static_cast<int64_t>(level.total)}});
  return Json::Object{{"unit", slo->unit}, {"levels", std::move(list)}};
}

Json Written(const std::vector<std::vector<MetricValue>>& waves) {
  Json list;
  for (const std::vector<MetricValue>& samples : waves) list.Append(ToJson(samples));
  return list;
}

Json Written(const std::vector<LoadWindow>& windows) {
  Json list;
  for (const LoadWindow& window : windows) {
    Json one = Json::Object{{"start_s", Written(window.start_s)},
                            {"end_s", Written(window.end_s)},
                            {"requests", window.requests}};
    if (window.by_time) one.Set("by_time", *window.by_time);
    SetLevel(window.level, one);
    list.Append(std::move(one));
  }
  return list;
}

Json Written(const std::optional<GeneratorPlace>& generator) {
  if (!generator) return {};
  return Json::Object{{"cpus", Json(generator->cpus)},
                      {"late_share", generator->late_share},
                      {"apart", generator->is_apart}};
}

void Take(const Json& json, std::string& text) {
  if (json.is_string()) text = json.string();
}
void Take(const Json& json, int& number) {
  if (json.is_int()) number = static_cast<int>(json.integer());
}
void Take(const Json& json, Plan& plan) { plan = ReadPlan(json); }
void Take(const Json& json, std::vector<std::string>& texts) { texts = StringsIn(json); }
void Take(const Json& json, std::optional<double>& number) {
  if (json.is_number()) number = json.number();
}

void Take(const Json& json, std::vector<int>& numbers) { numbers = IntegersIn(&json); }

void Take(const Json& json, std::vector<std::vector<MetricValue>>& waves) {
  for (const Json& wave : ItemsOf(&json)) {
    auto samples = ReadSamples(wave);
    if (samples) waves.push_back(std::move(*samples));
  }
}

void Take(const Json& json, std::vector<LoadWindow>& windows) {
  for (const Json& one : json.is_array() ? json.array() : Json::Array()) {
    const auto level = LevelOf(one);
    if (!level) continue;
    LoadWindow& window = windows.emplace_back();
    window.level = *level;
    window.requests = Optional<int>(one, "requests", 0).value_or(0);
    if (const Json* start_s = one.Find("start_s")) Take(*start_s, window.start_s);
    if (const Json* end_s = one.Find("end_s")) Take(*end_s, window.end_s);
    if (const Json* by_time = one.Find("by_time"); by_time && by_time->is_bool())
      window.by_time = by_time->boolean();
  }
}

void Take(const Json& json, std::optional<GeneratorPlace>& generator) {
  const Json* apart = json.is_object() ? json.Find("apart") : nullptr;
  if (!apart || !apart->is_bool()) return;  // older versions did not tell
  GeneratorPlace& place = generator.emplace();
  if (const Json* cpus = json.Find("cpus")) Take(*cpus, place.cpus);
  place.late_share = Optional<double>(json, "late_share", 0).value_or(0);
  place.is_apart = apart->boolean();
}

void Take(const Json& json, std::vector<Distribution>& distributions) {
  for (const Json& one : ItemsOf(&json)) {
    const auto metric = Require<std::string>(one, "metric");
    const auto level = LevelOf(one);
    const auto n = Require<int64_t>(one, "n");
    const Json* values = one.Find("values");
    if (!metric || !level || !n || !values || !values->is_array()) continue;
    Distribution& row =
        distributions.emplace_back(Distribution{*metric, *level, static_cast<size_t>(*n), {}});
    for (const Json& value : values->array())
      if (value.is_number()) row.quantiles.push_back(value.number());
  }
}

void Take(const Json& json, std::optional<SearchedLevels>& slo) {
  if (!json.is_object()) return;
  slo.emplace().unit = TextAt(json, "unit");
  for (const Json& one : ItemsOf(json, "levels")) {
    const auto load = Optional<double>(one, "load", 0.0);
    const auto good = Optional<int>(one, "good", 0), total = Optional<int>(one, "total", 0);
    if (load && good && total && *total > 0 && *good >= 0)
      slo->levels[*load] = {static_cast<size_t>(*good), static_cast<size_t>(*total)};
  }
}

}  // namespace

Json ToJson(const std::vector<MetricValue>& samples) {
  Json list = Json::MakeArray();
  for (const MetricValue& sample : samples) {
    Json one = Json::Object{{"metric", sample.metric}, {"value", sample.value}};
    SetLevel(sample.level, one);
    list.Append(std::move(one));
  }
  return list;
}

Result<std::vector<MetricValue>> ReadSamples(const Json& list) {
  if (!list.is_array()) return Fail(ErrorCode::kFailed, "a trial's samples must be a list");
  std::vector<MetricValue> samples;
  for (const Json& one : list.array()) {
    MetricValue& sample = samples.emplace_back();
    PINION_ASSIGN(sample.metric, Require<std::string>(one, "metric"));
    PINION_ASSIGN(sample.level, LevelOf(one));
    PINION_ASSIGN(sample.value, Require<double>(one, "value"));
  }
  return samples;
}

std::vector<MetricValue> MeansOf(const std::vector<std::vector<MetricValue>>& waves) {
  std::vector<MetricValue> means;
  std::vector<int> counts;
  for (const std::vector<MetricValue>& wave : waves)
    for (const MetricValue& sample : wave) {
      const auto found = std::find_if(means.begin(), means.end(), [&](const MetricValue& one) {
        return one.metric == sample.metric && one.level == sample.level;
      });
      const auto at = static_cast<size_t>(found - means.begin());
      if (found == means.end()) {
        means.push_back(sample);
        counts.push_back(1);
        continue;
      }
      ++counts[at];
      means[at].value += (sample.value - means[at].value) / counts[at];
    }
  return means;
}

void Pool(const SearchedLevels& found, SearchedLevels& into) {
  into.unit = found.unit;
  for (const auto& [load, run] : found.levels) {
    LevelRun& level = into.levels[load];
    level.good += run.good;
    level.total += run.total;
  }
}

Json ToJson(const TrialInfo& info) {
  Json object = info.rest;
  EachMember(info, [&](const char* key, const auto& member) {
    if (Json json = Written(member); !json.is_null()) object.Set(key, std::move(json));
  });
  return object;
}

TrialInfo ReadTrialInfo(const Json& object) {
  TrialInfo info;
  for (const auto& [key, value] : object.is_object() ? object.object() : Json::Object()) {
    bool known = false;
    EachMember(info, [&, &name = key, &json = value](std::string_view member_key, auto& member) {
      if (member_key != name) return;
      Take(json, member);
      known = true;
    });
    if (!known) info.rest.Set(key, value);
  }
  return info;
}

}  // namespace pinion::harness
