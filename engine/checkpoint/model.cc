#include "engine/checkpoint/model.h"

#include <sys/stat.h>

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"
#include "engine/checkpoint/fp8.h"
#include "engine/checkpoint/gguf_encoder.h"
#include "engine/checkpoint/hf_quant_config.h"
#include "engine/checkpoint/hub.h"
#include "engine/checkpoint/mxfp4.h"
#include "engine/checkpoint/preset.h"
#include "engine/checkpoint/quantised_source.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/checkpoint/stored.h"
#include "engine/checkpoint/tokenizer_end.h"
#include "engine/spec/field_names.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

constexpr std::string_view kPresetPrefix = "preset:";

enum class PathKind { kAbsent, kFolder, kOther };

PathKind KindOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return PathKind::kAbsent;
  return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kOther;
}

Result<DecoderSpec> SpecOf(const Json& config, const std::optional<Json>& generation_config) {
  PINION_ASSIGN(DecoderSpec spec, ReadSpec(config));
  if (generation_config) PINION_TRY(JoinEosIds(*generation_config, spec));
  return spec;
}

Result<ModelFiles> FindPreset(const std::string& model) {
  ModelFiles files;
  files.name = model;
  std::string name = model.substr(kPresetPrefix.size());
  if (const size_t colon = name.find(':'); colon != std::string::npos) {
    PINION_ASSIGN(files.scheme, PresetScheme(name.substr(colon + 1)));
    name.resize(colon);
  }
  PINION_ASSIGN(files.config, PresetConfig(name));
  const bool is_mxfp4 = files.scheme && files.scheme->method == QuantMethod::kMxfp4;
  if (is_mxfp4)  // which says how the experts' tensors are named
    files.config.Set("quantization_config", Json::Object{{"quant_method", "mxfp4"}});
  PINION_ASSIGN(files.spec, ReadSpec(files.config));
  if (is_mxfp4 && ExpertLinears(files.spec).empty())
    return Fail(ErrorCode::kUsage, StrCat("scheme 'mxfp4' rounds the experts of a mixture, and '",
                                          name, "' has none; use w8a8, awq, gptq or fp8"));
  return files;
}

Result<ModelFiles> OpenFile(const std::string& model) {
  if (!model.ends_with(".gguf"))
    return Fail(ErrorCode::kUsage, StrCat("'", model,
                                          "' is a file; MODEL is a folder with config.json and "
                                          "safetensors files, a .gguf file, preset:NAME or "
                                          "org/name"));
  ModelFiles files;
  files.name = model;
  PINION_ASSIGN(files.gguf, OpenGguf(model));
  const auto describe = [&]() -> Status {
    FieldNames names;
    PINION_ASSIGN(files.config, GgufConfig(*files.gguf, &names));
    auto spec = ReadSpec(files.config);
    if (!spec) return Fail(spec.error().code, WithFileNames(spec.error().message, names));
    files.spec = std::move(*spec);
    PINION_ASSIGN(files.embedder, ReadGgufEmbedder(files.gguf->header));
    if (files.spec.classifier.labels > 0) files.embedder.reset();
    PINION_ASSIGN(files.yes_no_head, ReadGgufYesNoHead(files.gguf->header));
    if (files.embedder || files.yes_no_head) DropHead(files.spec);
    return ApplyGguf(*files.gguf, files.spec);
  };
  if (auto described = describe(); !described)
    return Unexpected(std::move(described).error().In(model));
  return files;
}

// Tensors under the spec's names, even if the checkpoint uses another prefix.
class RenamedSource : public TensorSource {
 public:
  RenamedSource(std::unique_ptr<TensorSource> source, std::string from, std::string to)
      : source_(std::move(source)), from_(std::move(from)), to_(std::move(to)) {}

  Result<TensorInfo> Find(const std::string& name) const override {
    auto info = source_->Find(StoredName(name));
    if (info) info->name = name;
    return info;
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names = source_->Names();
    for (std::string& name : names)
      if (name.starts_with(to_)) name = from_ + name.substr(to_.size());
    std::sort(names.begin(), names.end());
    return names;
  }
  const std::byte* Rows(const TensorInfo& info, size_t row, size_t count,
                        std::vector<std::byte>& scratch) const override {
    return source_->Rows(AsStored(info), row, count, scratch);
  }
  void Release(const TensorInfo& info, size_t row, size_t count) const override {
    source_->Release(AsStored(info), row, count);
  }
  std::optional<StoredTensor> Stored(const std::string& name) const override {
    return source_->Stored(StoredName(name));
  }

 private:
  std::string StoredName(const std::string& name) const {
    return name.starts_with(from_) ? to_ + name.substr(from_.size()) : name;
  }
  TensorInfo AsStored(TensorInfo info) const {
    info.name = StoredName(info.name);
    return info;
  }

  std::unique_ptr<TensorSource> source_;
  std::string from_, to_;
};

// The embedding decides which spelling a checkpoint uses; every architecture has one.
std::unique_ptr<TensorSource> ApplyAliases(std::unique_ptr<TensorSource> source,
                                           const TensorNames& names) {
  const auto stored = source->Names();
  const auto has = [&](const std::string& name) {
    return std::binary_search(stored.begin(), stored.end(), name);
  };
  if (has(names.embedding)) return source;
  for (const auto& [from, to] : names.prefix_aliases) {
    if (!names.embedding.starts_with(from)) continue;
    if (has(to + names.embedding.substr(from.size())))
      return std::make_unique<RenamedSource>(std::move(source), from, to);
  }
  return source;
}

bool HasPrefix(const std::vector<std::string>& sorted, const std::string& prefix) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), prefix);
  return found != sorted.end() && found->starts_with(prefix);
}

// Applies the aliases of parts of layers ("model.layers.{}.mlp."), to those with a dense MLP.
std::unique_ptr<TensorSource> ApplyLayerAliases(std::unique_ptr<TensorSource> source,
                                                const DecoderSpec& spec) {
  const auto stored = source->Names();
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.layer_specs[static_cast<size_t>(layer)].mlp != MlpKind::kDense) continue;
    for (const auto& [first, second] : spec.names.prefix_aliases) {
      if (first.find("{}") == std::string::npos) continue;
      const std::string from = LayerTensor(first, layer), to = LayerTensor(second, layer);
      if (!HasPrefix(stored, from) && HasPrefix(stored, to))
        source = std::make_unique<RenamedSource>(std::move(source), from, to);
    }
  }
  return source;
}

// Whether the first layer of experts has one that is stored apart.
bool StoresExpertsApart(const std::string& folder, const DecoderSpec& spec) {
  auto opened = OpenSafetensors(folder);
  if (!opened) return false;  // OpenWeights says why
  const auto stored = ApplyAliases(std::move(*opened), spec.names)->Names();
  int layer = 0;
  while (layer < spec.layers &&
         spec.layer_specs[static_cast<size_t>(layer)].mlp != MlpKind::kExperts)
    ++layer;
  return HasPrefix(stored, ExpertTensor(spec.names.expert_down, layer, 0));
}

// If the architecture names its experts both in one tensor and apart: keeps the names that the
// folder has.
void ChooseExpertNames(const std::string& folder, DecoderSpec& spec) {
  TensorNames& names = spec.names;
  if (names.experts_gate_up.empty() || names.expert_down.empty()) return;
  if (StoresExpertsApart(folder, spec)) {
    spec.moe.tensors = ExpertTensors::kEach;
    names.experts_gate_up = names.experts_down = "";
  } else {
    names.expert_gate = names.expert_up = names.expert_down = "";
  }
}

Result<ModelFiles> OpenFolder(const std::string& model, const std::string& folder) {
  ModelFiles files;
  files.name = model;
  files.folder = folder;
  const std::string config = folder + "/config.json";
  if (KindOf(config) == PathKind::kAbsent &&
      KindOf(folder + "/adapter_config.json") != PathKind::kAbsent)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'", folder,
                       "' is an adapter, which Pinion does not apply; merge it into its base model "
                       "and name that folder"));
  if (KindOf(config) == PathKind::kAbsent)
    return Fail(ErrorCode::kNotFound, StrCat("'", folder,
                                             "' holds no config.json; MODEL is a folder in "
                                             "Hugging Face's layout, preset:NAME or org/name"));
  PINION_ASSIGN(files.config, ParseConfigFile(config));
  PINION_ASSIGN(const std::string quantisation, AddQuantisationBeside(folder, files.config));
  const std::string generation = folder + "/generation_config.json";
  if (KindOf(generation) != PathKind::kAbsent) {
    PINION_ASSIGN(files.generation_config, ParseConfigFile(generation));
  }
  auto spec = SpecOf(files.config, files.generation_config);
  if (!spec) return Unexpected(std::move(spec).error().In(config));
  files.spec = std::move(*spec);
  PINION_TRY(JoinTokenizerEnd(folder, files.spec));
  ChooseExpertNames(folder, files.spec);
  PINION_ASSIGN(files.embedder, ReadEmbedder(folder));
  if (files.embedder) DropHead(files.spec);  // which a checkpoint may have kept from generation
  auto scheme = ReadScheme(files.config);
  if (!scheme) return Unexpected(std::move(scheme).error().In(quantisation));
  files.scheme = *scheme;
  // Quantisers write float16, the type of the GPUs they were made for. Only a few norms and the
  // embedding are stored in it: not worth computing in a type that most CPUs have no arithmetic
  // for.
  if (files.scheme && files.spec.checkpoint_dtype == "float16")
    files.spec.checkpoint_dtype = "bfloat16";
  return files;
}

// A vector may be stored as a matrix of one row, as ERNIE does.
bool HasShape(const TensorInfo& info, const std::vector<int64_t>& wanted) {
  return info.shape == wanted ||
         (wanted.size() == 1 && info.shape == std::vector<int64_t>{1, wanted[0]});
}

Status CheckTensors(const TensorSource& source, const DecoderSpec& spec) {
  for (const TensorSpec& wanted : TensorList(spec)) {
    PINION_ASSIGN(const TensorInfo info, source.Find(wanted.name));
    if (!HasShape(info, wanted.shape))
      return Fail(ErrorCode::kCorrupt, StrCat("tensor '", wanted.name, "' of ", info.file,
                                              " has shape ", ShapeText(info.shape),
                                              ", config.json asks for ", ShapeText(wanted.shape)));
  }
  return {};
}

}  // namespace

Result<ModelFiles> FindModel(const std::string& model) {
  if (model.starts_with(kPresetPrefix)) return FindPreset(model);
  switch (KindOf(model)) {
    case PathKind::kFolder:
      return OpenFolder(model, model);
    case PathKind::kOther:
      return OpenFile(model);
    case PathKind::kAbsent:
      break;
  }
  PINION_ASSIGN(const std::string snapshot, FindInHub(model));
  return OpenFolder(model, snapshot);
}

Result<std::unique_ptr<TensorSource>> OpenWeights(const ModelFiles& files, uint64_t seed) {
  const std::string& where = files.gguf ? files.name : files.folder;
  if (where.empty()) {
    auto made_up = MakeUpWeights(files.spec, files.spec.checkpoint_dtype, seed);
    if (!files.scheme) return made_up;
    return RoundLinears(std::move(made_up), files.spec, *files.scheme);
  }
  const auto open = [&]() -> Result<std::unique_ptr<TensorSource>> {
    if (files.gguf) return OpenGgufTensors(files.gguf, files.spec);
    PINION_ASSIGN(auto stored, OpenSafetensors(files.folder));
    stored = ApplyLayerAliases(ApplyAliases(std::move(stored), files.spec.names), files.spec);
    if (!files.scheme) return stored;
    switch (files.scheme->method) {
      case QuantMethod::kFp8:
        return OpenFp8Linears(std::move(stored), files.spec, *files.scheme);
      case QuantMethod::kMxfp4:
        return OpenMxfp4Experts(std::move(stored), files.spec);
      default:
        return OpenQuantisedLinears(std::move(stored), files.spec, *files.scheme);
    }
  };
  PINION_ASSIGN(auto source, open());
  if (auto checked = CheckTensors(*source, files.spec); !checked)
    return Unexpected(std::move(checked).error().In(where));
  return source;
}

}  // namespace pinion
