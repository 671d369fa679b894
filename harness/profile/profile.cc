#include "harness/profile/profile.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/run/replicas.h"

namespace pinion::harness {
namespace {

// A sweep's profile has a few kilobytes; a larger file is something else.
constexpr uint64_t kMaxProfileBytes = uint64_t{1} << 20;

const std::vector<std::string> kKeys = {"format",     "objective", "model",     "configuration",
                                        "machine",    "cpus",      "allocator", "openmp",
                                        "huge_pages", "replicas",  "expected",  "evidence"};

Error InProfile(Error error) {
  error.code = ErrorCode::kCorrupt;
  return error;
}

Status CheckKeys(const Json& object) {
  for (const auto& [key, value] : object.object()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      return Fail(
          ErrorCode::kCorrupt,
          StrCat("'", key, "' is not a key of a profile; the keys are ", Join(kKeys, ", ")));
  }
  return {};
}

Status CheckFormat(const Json& object) {
  const auto format = Require<int64_t>(object, "format");
  if (!format) return Unexpected(InProfile(format.error()));
  if (*format == Profile::kFormat) return {};
  return Fail(ErrorCode::kUnsupported,
              StrCat("format ", *format, " is unknown, this version reads only ", Profile::kFormat,
                     "; write the profile again with this version's `pinion sweep`"));
}

// CPU numbers, so that launch can say which of them are gone.
Status CheckCpus(const Json& cpus) {
  const bool fine =
      cpus.is_array() && std::all_of(cpus.array().begin(), cpus.array().end(), [](const Json& cpu) {
        return cpu.is_int() && cpu.integer() >= 0 && cpu.integer() < (1 << 20);
      });
  if (fine) return {};
  return Fail(ErrorCode::kCorrupt, "'cpus' is not a list of CPU numbers");
}

Result<EngineOptions> ReadOptions(const Json& object) {
  const Json* configuration = object.Find("configuration");
  if (!configuration || !configuration->is_object())
    return Fail(ErrorCode::kCorrupt, "'configuration' is not an object");
  auto model = Require<std::string>(object, "model");
  if (!model) return Unexpected(InProfile(std::move(model).error()));
  if (model->empty()) return Fail(ErrorCode::kCorrupt, "'model' is empty");
  // MODEL is a word of the command line that launch runs, in which a dash would make it a flag.
  if (model->front() == '-')
    return Fail(ErrorCode::kCorrupt, StrCat("'model' is '", *model, "', which reads as a flag"));
  EngineOptions options;
  if (auto read = FromJson(*configuration, options); !read)
    return Unexpected(InProfile(std::move(read).error().In("configuration")));
  options.model = *model;
  return options;
}

// Names, never paths: a file can only select libraries from a fixed list.
Result<RuntimeChoice> ReadRuntime(const Json& object) {
  RuntimeChoice runtime;
  for (const RuntimeSetting& setting : RuntimeSettings()) {
    auto value = Optional<std::string>(object, setting.key, setting.values.front());
    if (!value) return Unexpected(InProfile(std::move(value).error()));
    if (std::find(setting.values.begin(), setting.values.end(), *value) == setting.values.end())
      return Fail(ErrorCode::kCorrupt, StrCat(setting.key, " '", *value, "' is not one of ",
                                              Join(setting.values, ", ")));
    runtime.*setting.member = std::move(*value);
  }
  return runtime;
}

Result<int> ReadReplicas(const Json& object) {
  auto replicas = Optional<int64_t>(object, "replicas", 1);
  if (!replicas) return Unexpected(InProfile(std::move(replicas).error()));
  if (*replicas >= 1 && *replicas <= kMaxReplicas) return static_cast<int>(*replicas);
  return Fail(ErrorCode::kCorrupt,
              StrCat("'replicas' is ", *replicas, "; it must be from 1 to ", kMaxReplicas));
}

Json OrNull(const Json* value) { return value ? *value : Json(); }

}  // namespace

Json ToJson(const Profile& profile) {
  Json configuration = ToJson(profile.options);
  // The model is a key of its own beside the configuration; launch always has a front end.
  std::erase_if(configuration.object(), [](const auto& item) {
    return item.first == "model" || item.first == "has_frontend" || item.first == "front_end_bytes";
  });
  Json json = Json::MakeObject();
  json.Set("format", Profile::kFormat);
  json.Set("objective", profile.objective);
  json.Set("model", profile.options.model);
  json.Set("configuration", std::move(configuration));
  for (const RuntimeSetting& setting : RuntimeSettings())
    json.Set(setting.key, profile.runtime.*setting.member);
  json.Set("replicas", profile.replicas);
  json.Set("machine", profile.machine);
  json.Set("cpus", profile.cpus);
  json.Set("expected", profile.expected);
  json.Set("evidence", profile.evidence);
  return json;
}

Result<Profile> ParseProfile(const Json& object) {
  if (!object.is_object())
    return Fail(ErrorCode::kCorrupt, StrCat("a profile is an object, not ", object.type_name()));
  PINION_TRY(CheckKeys(object));
  PINION_TRY(CheckFormat(object));
  Profile profile;
  PINION_ASSIGN(profile.options, ReadOptions(object));
  auto objective = Require<std::string>(object, "objective");
  if (!objective) return Unexpected(InProfile(std::move(objective).error()));
  profile.objective = *objective;
  PINION_ASSIGN(profile.runtime, ReadRuntime(object));
  PINION_ASSIGN(profile.replicas, ReadReplicas(object));
  profile.machine = OrNull(object.Find("machine"));
  if (!profile.machine.is_object()) return Fail(ErrorCode::kCorrupt, "'machine' is not an object");
  profile.cpus = OrNull(object.Find("cpus"));
  PINION_TRY(CheckCpus(profile.cpus));
  profile.expected = OrNull(object.Find("expected"));
  profile.evidence = OrNull(object.Find("evidence"));
  return profile;
}

Result<Profile> ReadProfile(const std::string& path) {
  PINION_ASSIGN(const std::string text, ReadFile(path, kMaxProfileBytes));
  auto object = Json::Parse(text);
  if (!object) return Unexpected(std::move(object).error().In(path));
  auto profile = ParseProfile(*object);
  if (!profile) return Unexpected(std::move(profile).error().In(path));
  return profile;
}

}  // namespace pinion::harness
