#include "engine/checkpoint/embedder.h"

#include <sys/stat.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/config_json.h"
#include "engine/checkpoint/cross_encoder.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

constexpr int64_t kMostModules = 64, kWidest = 1 << 20;

struct KindName {
  const char *name, *key;  // the key of 1_Pooling/config.json
};
// By PoolingKind.
constexpr KindName kKinds[] = {{"cls", "pooling_mode_cls_token"},
                               {"lasttoken", "pooling_mode_lasttoken"},
                               {"mean", "pooling_mode_mean_tokens"},
                               {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
                               {"weightedmean", "pooling_mode_weightedmean_tokens"},
                               {"max", "pooling_mode_max_tokens"}};

struct ActivationName {
  std::string_view name;  // of torch.nn
  DenseSpec::Activation activation;
};
constexpr ActivationName kActivations[] = {{"Identity", DenseSpec::Activation::kNone},
                                           {"Tanh", DenseSpec::Activation::kTanh},
                                           {"ReLU", DenseSpec::Activation::kRelu},
                                           {"GELU", DenseSpec::Activation::kGelu},
                                           {"Sigmoid", DenseSpec::Activation::kSigmoid}};

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

// "sentence_transformers.models.Pooling" -> "Pooling".
std::string_view LastPart(std::string_view dotted) {
  const size_t dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}

// Today's "pooling_mode": "mean", or a flag for each kind.
Result<std::vector<PoolingKind>> KindsOf(const Json& config) {
  std::vector<PoolingKind> kinds;
  const Json* mode = config.Find("pooling_mode");
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    PINION_ASSIGN(const bool set, Optional<bool>(config, kKinds[i].key, false));
    const bool named = mode && mode->is_string() && mode->string() == kKinds[i].name;
    if (set || named) kinds.push_back(static_cast<PoolingKind>(i));
  }
  return kinds;
}

Status ReadPooling(const Json& config, EmbedderSpec& spec) {
  PINION_ASSIGN(const std::vector<PoolingKind> kinds, KindsOf(config));
  if (kinds.size() != 1) {
    std::vector<std::string> known;
    for (const KindName& kind : kKinds) known.emplace_back(kind.key);
    return Fail(ErrorCode::kUnsupported,
                StrCat("it asks for ", kinds.size(), " kinds of pooling, want exactly one of ",
                       Join(known, ", ")));
  }
  spec.pooling = kinds[0];
  PINION_ASSIGN(const bool include, Optional<bool>(config, "include_prompt", true));
  if (!include)
    return Fail(ErrorCode::kUnsupported,
                "'include_prompt' is false, but Pinion pools a prompt's tokens with the text's");
  return {};
}

Result<DenseSpec> ReadDense(const Json& config, const std::string& folder) {
  DenseSpec dense;
  dense.folder = folder;
  for (const auto& [key, size] : {std::pair<const char*, size_t*>{"in_features", &dense.inputs},
                                  {"out_features", &dense.outputs}}) {
    PINION_ASSIGN(const int64_t value, Require<int64_t>(config, key));
    if (value < 1 || value > kWidest)
      return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is ", value, ", want 1 to ", kWidest));
    *size = static_cast<size_t>(value);
  }
  PINION_ASSIGN(dense.bias, Optional<bool>(config, "bias", true));
  PINION_ASSIGN(const std::string name, Optional<std::string>(config, "activation_function",
                                                              "torch.nn.modules.activation.Tanh"));
  std::vector<std::string> known;
  for (const ActivationName& activation : kActivations) {
    known.emplace_back(activation.name);
    if (LastPart(name) != activation.name) continue;
    dense.activation = activation.activation;
    return dense;
  }
  return Fail(ErrorCode::kUnsupported, StrCat("'activation_function' is '", name.substr(0, 80),
                                              "', want one of ", Join(known, ", ")));
}

// Adds what one module does after the transformer.
Status AddModule(const std::string& folder, const std::string& path, std::string_view type,
                 EmbedderSpec& spec) {
  if (type == "Normalize") {
    spec.normalises = true;
    return {};
  }
  if (type != "Pooling" && type != "Dense")
    return Fail(ErrorCode::kUnsupported,
                StrCat("modules.json has a module '", type.substr(0, 80),
                       "', want Transformer, Pooling, Dense or Normalize"));
  const std::string at = folder + "/" + path, file = at + "/config.json";
  PINION_ASSIGN(const Json config, ParseConfigFile(file));
  const auto read = [&]() -> Status {
    if (type == "Pooling") return ReadPooling(config, spec);
    PINION_ASSIGN(DenseSpec dense, ReadDense(config, at));
    if (!spec.dense.empty() && spec.dense.back().outputs != dense.inputs)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'in_features' is ", dense.inputs, ", but the module before gives ",
                         spec.dense.back().outputs));
    spec.dense.push_back(std::move(dense));
    return {};
  };
  if (auto done = read(); !done) return Unexpected(std::move(done).error().In(file));
  return {};
}

Status ReadModules(const std::string& folder, EmbedderSpec& spec) {
  const std::string file = folder + "/modules.json";
  PINION_ASSIGN(const Json modules, ParseConfigFile(file));
  if (!modules.is_array() || modules.array().size() > size_t{kMostModules})
    return Fail(ErrorCode::kCorrupt,
                StrCat(file, ": want a list of at most ", kMostModules, " modules"));
  bool pools = false;
  for (const Json& module : modules.array()) {
    const auto read = [&]() -> Status {
      PINION_ASSIGN(const std::string type, Require<std::string>(module, "type"));
      PINION_ASSIGN(const std::string path, Require<std::string>(module, "path"));
      const std::string_view kind = LastPart(type);
      if (kind == "Transformer") return {};
      if (path.find("..") != std::string::npos || path.starts_with("/"))
        return Fail(ErrorCode::kCorrupt,
                    StrCat("'path' is '", path.substr(0, 80), "', want a folder of the model"));
      if (spec.normalises)
        return Fail(ErrorCode::kUnsupported, StrCat("'", kind,
                                                    "' comes after Normalize, which "
                                                    "Pinion computes last"));
      if (!pools && kind != "Pooling")
        return Fail(ErrorCode::kUnsupported, StrCat("'", kind, "' comes before Pooling"));
      pools = true;
      return AddModule(folder, path, kind, spec);
    };
    if (auto done = read(); !done) return Unexpected(std::move(done).error().In(file));
  }
  if (pools) return {};
  return Fail(ErrorCode::kUnsupported, StrCat(file, ": it has no module Pooling"));
}

Status ReadPrompts(const std::string& folder, EmbedderSpec& spec) {
  const std::string file = folder + "/config_sentence_transformers.json";
  if (!FileExists(file)) return {};
  PINION_ASSIGN(const Json config, ParseConfigFile(file));
  const auto read = [&]() -> Status {
    if (const Json* prompts = config.Find("prompts"); prompts && prompts->is_object())
      for (const auto& [name, prompt] : prompts->object()) {
        if (!prompt.is_string())
          return Fail(ErrorCode::kCorrupt, StrCat("'prompts' has ", prompt.type_name(), " for '",
                                                  name.substr(0, 80), "', want a string"));
        spec.prompts[name] = prompt.string();
      }
    PINION_ASSIGN(spec.default_prompt,
                  Optional<std::string>(config, "default_prompt_name", std::string()));
    if (!spec.default_prompt.empty() && !spec.prompts.contains(spec.default_prompt))
      return Fail(ErrorCode::kCorrupt, StrCat("'default_prompt_name' is '", spec.default_prompt,
                                              "', which 'prompts' does not have"));
    return {};
  };
  if (auto done = read(); !done) return Unexpected(std::move(done).error().In(file));
  return {};
}

Status ReadLength(const std::string& folder, EmbedderSpec& spec) {
  const std::string file = folder + "/sentence_bert_config.json";
  if (!FileExists(file)) return {};
  PINION_ASSIGN(const Json config, ParseConfigFile(file));
  const auto read = [&]() -> Status {
    const Json* stated = config.Find("max_seq_length");
    if (stated && !stated->is_null()) {
      PINION_ASSIGN(const int most, RequireIn(config, "max_seq_length", 1, kMaxPositions));
      spec.max_tokens = static_cast<size_t>(most);
    }
    PINION_ASSIGN(const bool lower, Optional<bool>(config, "do_lower_case", false));
    if (lower)
      return Fail(ErrorCode::kUnsupported,
                  "'do_lower_case' is true; Pinion leaves that to the tokenizer's normaliser");
    return {};
  };
  if (auto done = read(); !done) return Unexpected(std::move(done).error().In(file));
  return {};
}

}  // namespace

const char* Name(PoolingKind kind) { return kKinds[static_cast<size_t>(kind)].name; }

Result<std::optional<EmbedderSpec>> ReadEmbedder(const std::string& folder) {
  if (!FileExists(folder + "/modules.json")) return std::optional<EmbedderSpec>();
  PINION_ASSIGN(const bool scores_pairs, IsCrossEncoder(folder));
  if (scores_pairs) return std::optional<EmbedderSpec>();
  EmbedderSpec spec;
  PINION_TRY(ReadModules(folder, spec));
  PINION_TRY(ReadPrompts(folder, spec));
  PINION_TRY(ReadLength(folder, spec));
  return std::optional(std::move(spec));
}

Result<std::string> WithPrompt(const EmbedderSpec& spec, const std::string& prompt_name,
                               const std::string& text) {
  const std::string& name = prompt_name.empty() ? spec.default_prompt : prompt_name;
  if (name.empty()) return text;
  if (const auto found = spec.prompts.find(name); found != spec.prompts.end())
    return found->second + text;
  std::vector<std::string> known;
  for (const auto& [each, prompt] : spec.prompts) known.push_back(each);
  return Fail(ErrorCode::kUsage,
              StrCat("the model has no prompt '", name.substr(0, 80), "', ",
                     known.empty() ? "nor any other" : StrCat("want one of ", Join(known, ", "))));
}

}  // namespace pinion
