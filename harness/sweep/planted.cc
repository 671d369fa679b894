#include "harness/sweep/planted.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/space/json_fields.h"

namespace pinion::harness {
namespace {

Status TakeNoise(const Json& noise, Planted& planted) {
  if (!noise.is_object())
    return Fail(ErrorCode::kUsage,
                "\"noise\" must be an object such as {\"B\":2}: how many times the recorded noise "
                "each configuration has");
  PINION_TRY(CheckNoneTwice(noise, "\"noise\""));
  for (const auto& [name, factor] : noise.object()) {
    const bool is_listed =
        std::any_of(planted.configurations.begin(), planted.configurations.end(),
                    [&name = name](const auto& one) { return one.first == name; });
    if (!is_listed)
      return Fail(ErrorCode::kUsage,
                  StrCat("\"noise\": '", name, "' is not among the configurations"));
    if (!factor.is_number() || !(factor.number() >= 1))
      return Fail(
          ErrorCode::kUsage,
          StrCat("the noise of '", name, "' must be a number of at least 1, not ", factor.Dump()));
    planted.noise[name] = factor.number();
  }
  return {};
}

// Of trials. With half of them or more no sweep would get anywhere.
Result<double> ShareIn(const Json& object, const char* key) {
  const Json* given = object.Find(key);
  if (!given) return 0;
  if (given->is_number() && given->number() >= 0 && given->number() < 0.5) return given->number();
  return Fail(ErrorCode::kUsage, StrCat("\"", key, "\" must be a share of trials from 0 to below ",
                                        "0.5, not ", given->Dump()));
}

Result<double> SpeedIn(const std::string& name, const Json& speed) {
  if (speed.is_number() && speed.number() > 0) return speed.number();
  return Fail(ErrorCode::kUsage, StrCat("the relative speed of '", name,
                                        "' must be a number above 0, not ", speed.Dump()));
}

// Planted effects besides speeds.
Status TakeTroubles(const Json& object, Planted& planted) {
  if (const Json* noise = object.Find("noise")) PINION_TRY(TakeNoise(*noise, planted));
  PINION_ASSIGN(planted.failures, ShareIn(object, "failures"));
  PINION_ASSIGN(planted.disturbed, ShareIn(object, "disturbed"));
  const Json* objectives = object.Find("objectives");
  if (!objectives) return {};
  if (!objectives->is_int() || objectives->integer() < 1 || objectives->integer() > 3)
    return Fail(ErrorCode::kUsage,
                StrCat("\"objectives\" must be 1, 2 or 3, not ", objectives->Dump()));
  planted.objectives = static_cast<size_t>(objectives->integer());
  return {};
}

Status CheckPlantedKeys(const Json& object) {
  return CheckKeys(object, "planted effects",
                   {"configurations", "noise", "objectives", "failures", "disturbed"});
}

}  // namespace

Result<Planted> ParsePlanted(const Json& object) {
  const Json* configurations = object.Find("configurations");
  if (!configurations || !configurations->is_object() || configurations->object().empty())
    return Fail(
        ErrorCode::kUsage,
        "planted effects must be an object such as {\"configurations\":{\"A\":1,\"B\":1.05}}: "
        "the relative speed of each configuration");
  PINION_TRY(CheckPlantedKeys(object));
  PINION_TRY(CheckNoneTwice(*configurations, "\"configurations\""));
  Planted planted;
  auto& list = planted.configurations;
  for (const auto& [name, given] : configurations->object()) {
    PINION_ASSIGN(const double speed, SpeedIn(name, given));
    if (name == "none")
      return Fail(ErrorCode::kUsage,
                  "a configuration cannot be called 'none', because 'none' stands for replays "
                  "without a winner");
    list.emplace_back(name, speed);
  }
  auto baseline = std::find_if(list.begin(), list.end(),
                               [](const auto& one) { return one.first == "default"; });
  if (baseline == list.end())
    baseline =
        std::find_if(list.begin(), list.end(), [](const auto& one) { return one.second == 1; });
  planted.default_is_listed = baseline != list.end();
  if (planted.default_is_listed) {
    std::rotate(list.begin(), baseline, baseline + 1);
  } else {
    list.emplace(list.begin(), "default", 1.0);
  }
  if (list.size() < 2)
    return Fail(ErrorCode::kUsage, "planted effects need a configuration besides the default");
  PINION_TRY(TakeTroubles(object, planted));
  return planted;
}

Result<Planted> ParsePlantedOn(const std::vector<std::string>& names, const Json& object) {
  PINION_TRY(CheckPlantedKeys(object));
  Planted planted;
  for (const std::string& name : names) planted.configurations.emplace_back(name, 1);
  if (const Json* configurations = object.Find("configurations")) {
    if (!configurations->is_object())
      return Fail(ErrorCode::kUsage,
                  StrCat("\"configurations\" must be an object such as {\"", names.back(),
                         "\":0.95}, not ", configurations->type_name()));
    PINION_TRY(CheckNoneTwice(*configurations, "\"configurations\""));
    for (const auto& [name, given] : configurations->object()) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end())
        return Fail(ErrorCode::kUsage, StrCat("the recorded sweep has no candidate '", name,
                                              "'; it has ", Join(names, ", ")));
      PINION_ASSIGN(planted.configurations[static_cast<size_t>(found - names.begin())].second,
                    SpeedIn(name, given));
    }
  }
  PINION_TRY(TakeTroubles(object, planted));
  return planted;
}

}  // namespace pinion::harness
