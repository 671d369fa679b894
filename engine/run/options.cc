#include "engine/run/options.h"

#include <cstdlib>
#include <utility>

#include "engine/base/strings.h"
#include "engine/run/isa_choice.h"
#include "engine/run/settings.h"

namespace pinion {
namespace {

using Role = PrefillOptions::Role;

constexpr char kModel[] = "model", kHasFrontend[] = "has_frontend",
               kFrontEndBytes[] = "front_end_bytes", kPrefill[] = "prefill",
               kWeightCopy[] = "weight_copy";

Status ReadModel(const Json& object, EngineOptions& options) {
  PINION_ASSIGN(options.model, Require<std::string>(object, kModel));
  return {};
}

Status ReadHasFrontend(const Json& object, EngineOptions& options) {
  PINION_ASSIGN(options.has_frontend, Require<bool>(object, kHasFrontend));
  return {};
}

Status ReadFrontEndBytes(const Json& object, EngineOptions& options) {
  PINION_ASSIGN(const int64_t bytes, Require<int64_t>(object, kFrontEndBytes));
  if (bytes < 0)
    return Fail(ErrorCode::kUsage, StrCat(kFrontEndBytes, " is ", bytes, ", want 0 or more"));
  options.front_end_bytes = static_cast<uint64_t>(bytes);
  return {};
}

Status ReadPrefill(const Json& object, EngineOptions& options) {
  const Json& prefill = *object.Find(kPrefill);
  PINION_ASSIGN(const std::string role, Require<std::string>(prefill, "role"));
  PINION_ASSIGN(options.prefill.listen, Require<std::string>(prefill, "listen"));
  const Json* from = prefill.Find("from");
  if (!from || !from->is_array())
    return Fail(ErrorCode::kUsage, StrCat(kPrefill, " has no list 'from'"));
  options.prefill.from.clear();
  for (const Json& address : from->array()) options.prefill.from.push_back(address.string());
  for (const Role one : {Role::kBoth, Role::kPrefill, Role::kDecode})
    if (role == Name(one)) options.prefill.role = one;
  return {};
}

Json PrefillJson(const PrefillOptions& prefill) {
  Json from = Json::MakeArray();
  for (const std::string& address : prefill.from) from.Append(address);
  return Json::Object{{"role", Name(prefill.role)}, {"listen", prefill.listen}, {"from", from}};
}

Status ReadWeightCopy(const Json& object, EngineOptions& options) {
  const Json& copy = *object.Find(kWeightCopy);
  PINION_ASSIGN(options.weight_copy.fd, Require<int>(copy, "fd"));
  PINION_ASSIGN(options.weight_copy.number, Require<int>(copy, "number"));
  PINION_ASSIGN(options.weight_copy.engines, Require<int>(copy, "engines"));
  return {};
}

Json WeightCopyJson(const WeightCopy& copy) {
  return Json::Object{{"fd", copy.fd}, {"number", copy.number}, {"engines", copy.engines}};
}

// The fields that are not settings.
constexpr std::pair<const char*, Status (*)(const Json&, EngineOptions&)> kOthers[] = {
    {kModel, ReadModel},
    {kHasFrontend, ReadHasFrontend},
    {kFrontEndBytes, ReadFrontEndBytes},
    {kPrefill, ReadPrefill},
    {kWeightCopy, ReadWeightCopy}};

Status SetField(const std::string& key, const Json& object, EngineOptions& options) {
  for (const auto& [name, read] : kOthers)
    if (key == name) return read(object, options);
  const SettingRow* row = FindSetting(key);
  if (!row || !row->is_of_engine())
    return Fail(ErrorCode::kUsage,
                StrCat("unknown engine option '", key, "'; the options are ", SettingKeys()));
  PINION_ASSIGN(const Json value, ReadSetting(*row, *object.Find(key), StrCat("'", key, "'")));
  Configuration changed{std::move(options)};
  row->set(value, changed);
  options = std::move(changed.options);
  return {};
}

}  // namespace

const char* Name(Role role) {
  constexpr const char* kNames[] = {"both", "prefill", "decode"};
  return kNames[static_cast<size_t>(role)];
}

Status Validate(const EngineOptions& options) {
  if (options.model.empty())
    return Fail(ErrorCode::kUsage,
                "no model given; name a folder, a .gguf file, preset:NAME or org/name");
  const Configuration all{options};
  for (const SettingRow& row : SettingRows())
    if (row.is_of_engine()) PINION_TRY(CheckSetting(row, row.get(all), row.name()));
  PINION_TRY(ChooseIsa(options.isa));
  return {};
}

Result<kernels::KvDtype> ResolveKvDtype(const EngineOptions& options, kernels::Dtype dtype) {
  using kernels::KvDtype;
  static const std::pair<const char*, KvDtype> kNames[] = {
      {"bf16", KvDtype::kBf16},     {"bfloat16", KvDtype::kBf16}, {"fp16", KvDtype::kF16},
      {"float16", KvDtype::kF16},   {"half", KvDtype::kF16},      {"fp32", KvDtype::kF32},
      {"float32", KvDtype::kF32},   {"float", KvDtype::kF32},     {"int8", KvDtype::kI8},
      {"fp8_e5m2", KvDtype::kE5m2}, {"fp8_e4m3", KvDtype::kE4m3}, {"fp8", KvDtype::kE4m3}};
  if (options.kv_cache_dtype == "auto") return kernels::KvDtypeOf(dtype);
  for (const auto& [name, type] : kNames)
    if (options.kv_cache_dtype == name) return type;
  return Fail(ErrorCode::kUsage,
              StrCat("--kv-cache-dtype '", options.kv_cache_dtype,
                     "' is unknown; use auto, bf16, fp16, fp32, int8, fp8_e5m2 or fp8_e4m3"));
}

Json ToJson(const EngineOptions& options) {
  Json object = Json::Object{{kModel, options.model}};
  const Configuration all{options};
  for (const SettingRow& row : SettingRows())
    if (row.is_of_engine()) object.Set(row.key, row.get(all));
  object.Set(kHasFrontend, options.has_frontend);
  object.Set(kFrontEndBytes, options.front_end_bytes);
  if (options.prefill.role != Role::kBoth) object.Set(kPrefill, PrefillJson(options.prefill));
  if (options.weight_copy.is_shared()) object.Set(kWeightCopy, WeightCopyJson(options.weight_copy));
  return object;
}

Status FromJson(const Json& object, EngineOptions& options) {
  if (!object.is_object())
    return Fail(ErrorCode::kUsage,
                StrCat("engine options are ", object.type_name(), ", want an object"));
  for (const auto& [key, value] : object.object()) {
    if (auto read = SetField(key, object, options); !read) {
      Error error = std::move(read).error();
      error.code = ErrorCode::kUsage;
      return Unexpected(std::move(error));
    }
  }
  return {};
}

Status ReadEnvironment(EngineOptions& options) {
  Configuration all{options};
  for (const SettingRow& row : SettingRows()) {
    const char* text = *row.environment ? std::getenv(row.environment) : nullptr;
    if (!text || !*text) continue;
    PINION_ASSIGN(const Json value, ParseSetting(row, text, row.environment));
    if (row.kind == SettingKind::kGib && value.number() == 0) continue;  // vLLM's word for unset
    PINION_TRY(CheckSetting(row, value, row.environment));
    row.set(value, all);
  }
  options = std::move(all.options);
  return {};
}

}  // namespace pinion
