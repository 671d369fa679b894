#include "engine/spec/spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/field_names.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/spec_checks.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// Refuses configs that Pinion cannot run at all, whatever the architecture.
Status CheckKind(const Json& config) {
  if (!config.is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("config.json holds ", config.type_name(), ", want an object"));
  return {};
}

// The config of the language model; in that of a model of text and more it is nested: its own
// fields, and those that are written once for all parts.
Result<Json> TextConfig(const Json& config) {
  const Json* nested = config.Find("text_config");
  if (!nested || nested->is_null()) return config;
  if (!nested->is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'text_config' is ", nested->type_name(), ", want an object"));
  Json text = *nested;
  for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id",
                          "tie_word_embeddings", "quantization_config"}) {
    const Json* shared = config.Find(key);
    if (shared && !text.Find(key)) text.Set(key, *shared);
  }
  return text;
}

// Of the model around the language model, "" if there is none.
std::string WrapperName(const Json& config) {
  const Json* nested = config.Find("text_config");
  if (!nested || nested->is_null()) return "";
  const Json* list = config.Find("architectures");
  const bool named =
      list && list->is_array() && !list->array().empty() && list->array()[0].is_string();
  return named ? list->array()[0].string() : "a model of text and more";
}

// The language model's tensors have these prefixes in such a checkpoint: today's, and those before
// transformers 4.52.
void AddWrapperAliases(TensorNames& names) {
  names.prefix_aliases.insert(names.prefix_aliases.begin(),
                              {{"model.", "model.language_model."}, {"", "language_model."}});
}

Json WithDefaults(Json config, std::string_view defaults) {
  const Json json = Json::Parse(defaults).value();
  for (const auto& [key, value] : json.object())
    if (!config.Find(key)) config.Set(key, value);
  return config;
}

// Every layer must attend to everything: windows and other kinds of layer are not computed.
Status CheckLayerTypes(const Json& config) {
  const Json* types = config.Find("layer_types");
  if (!types || types->is_null()) return {};
  if (!types->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'layer_types' is ", types->type_name(), ", want a list"));
  for (const Json& type : types->array())
    if (!type.is_string() || type.string() != "full_attention")
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'layer_types' holds ", type.Dump(), ", want full_attention only"));
  return {};
}

// One id, a list of ids, or nothing.
Result<std::vector<int32_t>> ReadIds(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  if (!value || value->is_null()) return std::vector<int32_t>{};
  const Json::Array list = value->is_array() ? value->array() : Json::Array{*value};
  if (list.size() > 1024)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'", key, "' lists ", list.size(), " ids, want at most 1024"));
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_int() || id.integer() < 0 || id.integer() > std::numeric_limits<int32_t>::max())
      return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' holds ", id.Dump().substr(0, 60),
                                              ", want token ids from 0 to 2147483647"));
    ids.push_back(static_cast<int32_t>(id.integer()));
  }
  return ids;
}

// "dtype" in transformers 5, "torch_dtype" in 4; absent means float32, as there.
Result<std::string> ReadDtype(const Json& config) {
  const Json* newer = config.Find("dtype");
  const char* key = newer && !newer->is_null() ? "dtype" : "torch_dtype";
  PINION_ASSIGN(const std::string old, Optional<std::string>(config, "torch_dtype", "float32"));
  PINION_ASSIGN(std::string dtype, Optional<std::string>(config, "dtype", old));
  if (dtype.rfind("torch.", 0) == 0) dtype = dtype.substr(6);
  for (const char* known : {"bfloat16", "float16", "float32"})
    if (dtype == known) return dtype;
  return Fail(ErrorCode::kUnsupported, StrCat("'", key, "' is '", dtype.substr(0, 80),
                                              "', want bfloat16, float16 or float32"));
}

// The names of fields that this config states under the architecture's own ones.
FieldNames OwnNames(const Json& config, std::span<const FieldAlias> aliases) {
  FieldNames names;
  for (const auto& [own, common] : aliases)
    if (const Json* value = config.Find(own); value && !value->is_null())
      names[std::string(common)] = own;
  return names;
}

Result<DecoderSpec> ReadAs(const Architecture& architecture, const Json& config,
                           const std::string& wrapper) {
  PINION_TRY(CheckNeutralFields(config, CommonNeutralFields(), architecture.reads));
  PINION_TRY(CheckNeutralFields(config, architecture.neutral));
  const auto& reads = architecture.reads;
  if (std::find(reads.begin(), reads.end(), "layer_types") == reads.end())
    PINION_TRY(CheckLayerTypes(config));
  DecoderSpec spec;
  spec.architecture = architecture.name;
  spec.wrapper = wrapper;
  PINION_TRY(architecture.read(config, spec));
  if (!wrapper.empty()) AddWrapperAliases(spec.names);
  PINION_TRY(CheckShape(spec));
  AssignKvTables(spec);
  PINION_ASSIGN(spec.checkpoint_dtype, ReadDtype(config));
  PINION_TRY(JoinEosIds(config, spec));
  PINION_ASSIGN(const auto bos, ReadIds(config, "bos_token_id"));
  if (!bos.empty()) spec.bos_id = bos[0];
  return spec;
}

}  // namespace

float QueryScale::At(size_t position) const {
  const double steps = std::floor((static_cast<double>(position) + ahead) / length);
  return static_cast<float>(1 + weight * std::log1p(steps));
}

Status JoinEosIds(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const auto ids, ReadIds(config, "eos_token_id"));
  for (const int32_t id : ids)
    if (std::find(spec.eos_ids.begin(), spec.eos_ids.end(), id) == spec.eos_ids.end())
      spec.eos_ids.push_back(id);
  return {};
}

Result<DecoderSpec> ReadSpec(const Json& whole) {
  PINION_TRY(CheckKind(whole));
  PINION_ASSIGN(const Json text, TextConfig(whole));
  const std::string wrapper = WrapperName(whole);
  auto found = FindArchitecture(text);
  if (!found && !wrapper.empty()) return Unexpected(std::move(found).error().In("'text_config'"));
  PINION_ASSIGN(const Architecture* architecture, std::move(found));
  auto spec = ReadAs(*architecture, WithDefaults(text, architecture->defaults), wrapper);
  if (!spec)
    return Fail(spec.error().code,
                WithFileNames(spec.error().message, OwnNames(text, architecture->aliases)));
  return spec;
}

void DropHead(DecoderSpec& spec) {
  spec.tied_head = false;
  spec.names.head.clear();
}

uint64_t ParameterCount(const DecoderSpec& spec) {
  uint64_t count = 0;
  for (const TensorSpec& tensor : TensorList(spec)) count += ElementCount(tensor.shape);
  return count;
}

}  // namespace pinion
