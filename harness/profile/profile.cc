#include "harness/profile/profile.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// A sweep's profile has a few kilobytes; a larger file is something else.
constexpr uint64_t kMaxProfileBytes = uint64_t{1} << 20;

const std::vector<std::string> kKeys = {"format",  "objective", "model",    "configuration",
                                        "machine", "cpus",      "expected", "evidence"};

Error InProfile(Error error) {
  error.code = ErrorCode::kCorrupt;
  return error;
}

Status CheckProfileKeys(const Json& object) {
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

Result<std::string> ReadModel(const Json& object) {
  auto model = Require<std::string>(object, "model");
  if (!model) return Unexpected(InProfile(std::move(model).error()));
  if (model->empty()) return Fail(ErrorCode::kCorrupt, "'model' is empty");
  // MODEL is a word of the command line that launch runs, in which a dash would make it a flag.
  if (model->front() == '-')
    return Fail(ErrorCode::kCorrupt, StrCat("'model' is '", *model, "', which reads as a flag"));
  return model;
}

// Of settings that name libraries only names are allowed, never paths: the registry lists them.
Status ReadSettings(const Json& object, Configuration& configuration) {
  for (const auto& [key, value] : object.object()) {
    const SettingRow* row = FindSetting(key);
    if (!row)
      return Fail(ErrorCode::kUsage,
                  StrCat("unknown setting '", key, "'; the settings are ", SettingKeys()));
    PINION_ASSIGN(const Json read, ReadSetting(*row, value, StrCat("'", key, "'")));
    if (!row->is_of_engine()) PINION_TRY(CheckSetting(*row, read, StrCat("'", key, "'")));
    row->set(read, configuration);
  }
  return {};
}

Result<Configuration> ReadConfiguration(const Json& object) {
  const Json* settings = object.Find("configuration");
  if (!settings || !settings->is_object())
    return Fail(ErrorCode::kCorrupt, "'configuration' is not an object");
  Configuration configuration;
  PINION_ASSIGN(configuration.options.model, ReadModel(object));
  if (auto read = ReadSettings(*settings, configuration); !read)
    return Unexpected(InProfile(std::move(read).error().In("configuration")));
  return configuration;
}

Json OrNull(const Json* value) { return value ? *value : Json(); }

}  // namespace

Json ToJson(const Profile& profile) {
  Json settings = Json::MakeObject();
  for (const SettingRow& row : SettingRows()) settings.Set(row.key, row.get(profile.configuration));
  return Json::Object{{"format", Profile::kFormat},
                      {"objective", profile.objective},
                      {"model", profile.configuration.options.model},
                      {"configuration", std::move(settings)},
                      {"machine", profile.machine},
                      {"cpus", profile.cpus},
                      {"expected", profile.expected},
                      {"evidence", profile.evidence}};
}

Result<Profile> ParseProfile(const Json& object) {
  if (!object.is_object())
    return Fail(ErrorCode::kCorrupt, StrCat("a profile is an object, not ", object.type_name()));
  PINION_TRY(CheckProfileKeys(object));
  PINION_TRY(CheckFormat(object));
  Profile profile;
  PINION_ASSIGN(profile.configuration, ReadConfiguration(object));
  auto objective = Require<std::string>(object, "objective");
  if (!objective) return Unexpected(InProfile(std::move(objective).error()));
  profile.objective = *objective;
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
