#include "harness/trial/trial.h"

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/load/exchange.h"

namespace pinion::harness {
namespace {

Result<RequestRow> ReadRequestRow(const Json& object) {
  RequestRow row;
  PINION_ASSIGN(row.load, Require<std::string>(object, "load"));
  PINION_ASSIGN(row.level, LevelOf(object));
  const Json* record = object.Find("record");
  if (!record) return Fail(ErrorCode::kFailed, "a trial's request needs 'record'");
  PINION_ASSIGN(row.record, ReadRequestRecord(*record));
  return row;
}

// The settings that are not options of an engine: the server's and the process's.
Json OtherSettings(const Configuration& configuration) {
  Json settings = Json::MakeObject();
  for (const SettingRow& row : SettingRows())
    if (!row.is_of_engine()) settings.Set(row.key, row.get(configuration));
  return settings;
}

Status TakeSettings(const Json& settings, Configuration& configuration) {
  if (!settings.is_object())
    return Fail(ErrorCode::kUsage, "'settings' of a trial request must be an object");
  for (const auto& [key, value] : settings.object()) {
    const SettingRow* row = FindSetting(key);
    if (!row)
      return Fail(ErrorCode::kUsage, StrCat("a trial request has an unknown setting '", key, "'"));
    PINION_ASSIGN(const Json read, ReadSetting(*row, value, key));
    row->set(read, configuration);
  }
  return {};
}

Result<const Json::Array*> SidesOf(const Json& object) {
  const Json* sides = object.Find("sides");
  if (!sides || !sides->is_array() || sides->array().size() != 2)
    return Fail(ErrorCode::kUsage, "a pair of trials needs two 'sides'");
  return &sides->array();
}

}  // namespace

Json ToJson(const TrialRequest& request) {
  Json object = Json::MakeObject();
  object.Set("engine", ToJson(request.engine));
  object.Set("options", ToJson(request.configuration.options));
  object.Set("settings", OtherSettings(request.configuration));
  object.Set("log", request.log);
  object.Set("workload", ToJson(request.workload));
  if (request.batch_prompts) object.Set("batch_prompts", *request.batch_prompts);
  object.Set("seed", request.seed);
  object.Set("limit_s", request.limit_s);
  if (request.deadline_s) object.Set("deadline_s", *request.deadline_s);
  object.Set("ceilings", request.ceilings);
  return object;
}

Result<TrialRequest> ReadTrialRequest(const Json& object) {
  TrialRequest request;
  const Json* options = object.Find("options");
  const Json* workload = object.Find("workload");
  if (!options || !workload)
    return Fail(ErrorCode::kUsage, "a trial request needs 'options' and 'workload'");
  if (const Json* engine = object.Find("engine")) {
    PINION_ASSIGN(request.engine, ReadEngineChoice(*engine));
  }
  PINION_TRY(FromJson(*options, request.configuration.options));
  if (const Json* settings = object.Find("settings"))
    PINION_TRY(TakeSettings(*settings, request.configuration));
  PINION_TRY(FromJson(*workload, request.workload));
  if (object.Find("batch_prompts")) {
    PINION_ASSIGN(request.batch_prompts, Require<int>(object, "batch_prompts"));
  }
  PINION_ASSIGN(const int64_t seed, Require<int64_t>(object, "seed"));
  PINION_ASSIGN(request.limit_s, Require<double>(object, "limit_s"));
  if (object.Find("deadline_s")) {
    PINION_ASSIGN(request.deadline_s, Require<double>(object, "deadline_s"));
  }
  PINION_ASSIGN(request.log, Optional<std::string>(object, "log", ""));
  PINION_ASSIGN(request.ceilings, Optional(object, "ceilings", false));
  request.seed = static_cast<uint64_t>(seed);
  return request;
}

Json ToJson(const PairRequest& request) {
  Json sides = Json::MakeArray();
  for (const TrialRequest& side : request.sides) sides.Append(ToJson(side));
  return Json::Object{{"sides", std::move(sides)}, {"waves", request.waves}};
}

Result<PairRequest> ReadPairRequest(const Json& object) {
  PINION_ASSIGN(const Json::Array* sides, SidesOf(object));
  PairRequest request;
  for (size_t i = 0; i < request.sides.size(); ++i) {
    PINION_ASSIGN(request.sides[i], ReadTrialRequest((*sides)[i]));
  }
  PINION_ASSIGN(request.waves, Require<int>(object, "waves"));
  return request;
}

Json ToJson(const PairResult& result) {
  Json sides = Json::MakeArray();
  for (const auto& side : result)
    sides.Append(side ? ToJson(*side) : Json(Json::Object{{"error", side.error().message}}));
  return Json::Object{{"sides", std::move(sides)}};
}

Result<PairResult> ReadPairResult(const Json& object) {
  PINION_ASSIGN(const Json::Array* sides, SidesOf(object));
  PairResult result;
  for (size_t i = 0; i < result.size(); ++i) {
    PINION_ASSIGN(const std::string error, Optional<std::string>((*sides)[i], "error", ""));
    result[i] = error.empty() ? ReadTrialResult((*sides)[i])
                              : Result<TrialResult>(Fail(ErrorCode::kFailed, error));
  }
  return result;
}

Json ToJson(const TrialResult& result) {
  Json requests = Json::MakeArray();
  for (const RequestRow& row : result.requests) {
    Json one = Json::Object{{"load", row.load}, {"record", ToJson(row.record)}};
    SetLevel(row.level, one);
    requests.Append(std::move(one));
  }
  return Json::Object{{"samples", ToJson(result.samples)},
                      {"requests", std::move(requests)},
                      {"suspect", Json(result.suspect)},
                      {"info", ToJson(result.info)},
                      {"too_slow", result.too_slow}};
}

Result<TrialResult> ReadTrialResult(const Json& object) {
  TrialResult result;
  const Json* samples = object.Find("samples");
  const Json* suspect = object.Find("suspect");
  const Json* info = object.Find("info");
  if (!samples || !samples->is_array() || !suspect || !suspect->is_array() || !info)
    return Fail(ErrorCode::kFailed, "a trial's result needs 'samples', 'suspect' and 'info'");
  PINION_ASSIGN(result.samples, ReadSamples(*samples));
  for (const Json& one : ItemsOf(object, "requests")) {
    PINION_ASSIGN(RequestRow row, ReadRequestRow(one));
    result.requests.push_back(std::move(row));
  }
  result.suspect = StringsIn(*suspect);
  PINION_ASSIGN(result.too_slow, Optional<std::string>(object, "too_slow", ""));
  result.info = ReadTrialInfo(*info);
  return result;
}

}  // namespace pinion::harness
