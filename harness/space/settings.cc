#include "harness/space/settings.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;
constexpr char kReplicas[] = "replicas";

// How one setting is read from and written to the options: the only list of settings to vary.
struct Field {
  const char* key;
  std::function<std::string(const Configuration&)> get;  // "" if unset
  std::function<Status(const std::string&, Configuration&)> set;
};

Field TextField(const char* key, std::string EngineOptions::*member) {
  return {key, [member](const Configuration& of) { return of.options.*member; },
          [member](const std::string& value, Configuration& of) -> Status {
            of.options.*member = value;
            return {};
          }};
}

Field RuntimeField(const RuntimeSetting& setting) {
  return {setting.key,
          [member = setting.member](const Configuration& of) { return of.runtime.*member; },
          [member = setting.member](const std::string& value, Configuration& of) -> Status {
            of.runtime.*member = value;
            return {};
          }};
}

Field IntField(const char* key, int EngineOptions::*member) {
  return {key, [member](const Configuration& of) { return StrCat(of.options.*member); },
          [key, member](const std::string& value, Configuration& of) -> Status {
            PINION_ASSIGN(const int64_t number, ParseInt(value, key));
            of.options.*member = static_cast<int>(number);
            return {};
          }};
}

std::string ReservedText(const Configuration& of) {
  const EngineOptions& options = of.options;
  return options.reserved_cpus ? StrCat(*options.reserved_cpus) : "";
}

Status SetReserved(const std::string& value, Configuration& of) {
  PINION_ASSIGN(const int64_t number, ParseInt(value, "reserved_cpus"));
  of.options.reserved_cpus = static_cast<int>(number);
  return {};
}

std::string KvText(const Configuration& of) {
  const EngineOptions& options = of.options;
  if (!options.kv_cache_bytes) return "";
  return StrCat(static_cast<double>(*options.kv_cache_bytes) / static_cast<double>(kGib));
}

Status SetKv(const std::string& value, Configuration& of) {
  PINION_ASSIGN(of.options.kv_cache_bytes, ParseBytes(value, kGib, "kv_cache_space"));
  return {};
}

Status SetReplicas(const std::string& value, Configuration& of) {
  PINION_ASSIGN(const int64_t number, ParseInt(value, kReplicas));
  of.replicas = static_cast<int>(std::clamp<int64_t>(number, INT32_MIN, INT32_MAX));
  return {};
}

std::vector<Field> EngineFields() {
  return {
      TextField("threads_bind", &EngineOptions::threads_bind),
      {"reserved_cpus", ReservedText, SetReserved},
      TextField("smt", &EngineOptions::smt),
      {"kv_cache_space", KvText, SetKv},
      IntField("tensor_parallel", &EngineOptions::tensor_parallel),
      {kReplicas, [](const Configuration& of) { return StrCat(of.replicas); }, SetReplicas},
      TextField("isa", &EngineOptions::isa),
      TextField("dtype", &EngineOptions::dtype),
      TextField("activations", &EngineOptions::activations),
      TextField("head_dtype", &EngineOptions::head_dtype),
      TextField("kv_cache_dtype", &EngineOptions::kv_cache_dtype),
      IntField("max_num_batched_tokens", &EngineOptions::max_num_batched_tokens),
      IntField("max_num_seqs", &EngineOptions::max_num_seqs),
  };
}

const std::vector<Field>& Fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> fields = EngineFields();
    for (const RuntimeSetting& setting : RuntimeSettings()) fields.push_back(RuntimeField(setting));
    return fields;
  }();
  return all;
}

// As a user would type it.
std::string TextOf(const Json& value) {
  if (value.is_string()) return value.string();
  return value.is_int() ? StrCat(value.integer()) : StrCat(value.number());
}

}  // namespace

std::vector<std::vector<Setting>> Axes(const Space& space) {
  std::vector<std::vector<Setting>> axes;
  const Json lists = ToJson(space);
  for (const auto& [key, values] : lists.object()) {
    axes.emplace_back();
    for (const Json& value : values.array()) axes.back().push_back({key, TextOf(value)});
  }
  return axes;
}

Status Apply(const Setting& setting, Configuration& configuration) {
  std::vector<std::string> known;
  for (const Field& field : Fields()) {
    if (setting.key == field.key) return field.set(setting.value, configuration);
    known.push_back(field.key);
  }
  return Fail(ErrorCode::kUsage,
              StrCat("unknown setting '", setting.key, "'; known are ", Join(known, ", ")));
}

Result<std::vector<Setting>> SettingsOf(const Json& point) {
  Configuration changed;
  for (const auto& [key, value] : point.object()) {
    if (!value.is_string() && !value.is_number())
      return Fail(ErrorCode::kUsage,
                  StrCat("setting '", key, "' must be text or a number, not ", value.Dump()));
    PINION_TRY(Apply({key, value.is_string() ? value.string() : value.Dump()}, changed));
  }
  std::vector<Setting> settings;
  for (const Field& field : Fields())
    if (point.Find(field.key)) settings.push_back({field.key, field.get(changed)});
  return settings;
}

std::vector<Setting> Difference(const Configuration& base, const Configuration& configuration) {
  std::vector<Setting> settings;
  for (const Field& field : Fields())
    if (field.get(base) != field.get(configuration))
      settings.push_back({field.key, field.get(configuration)});
  return settings;
}

RuntimeChoice RuntimeOf(const std::vector<Setting>& settings) {
  RuntimeChoice runtime;
  for (const Setting& setting : settings)
    for (const RuntimeSetting& known : RuntimeSettings())
      if (setting.key == known.key) runtime.*known.member = setting.value;
  return runtime;
}

int ReplicasOf(const std::vector<Setting>& settings) {
  Configuration named;
  for (const Setting& setting : settings)
    if (setting.key == kReplicas && !SetReplicas(setting.value, named)) return 1;
  return named.replicas;
}

std::string Label(const std::vector<Setting>& settings) {
  if (settings.empty()) return "default";
  std::vector<std::string> parts;
  for (const Setting& setting : settings) parts.push_back(StrCat(setting.key, "=", setting.value));
  return Join(parts, " ");
}

}  // namespace pinion::harness
