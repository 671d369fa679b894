// The parts of a config that Llama's relatives share, and readers of fields that many architectures
// have.

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

TensorNames LlamaNames() {
  const std::string attention = "model.layers.{}.self_attn.", mlp = "model.layers.{}.mlp.";
  TensorNames names;
  names.embedding = "model.embed_tokens.weight";
  names.attention_norm = "model.layers.{}.input_layernorm";
  names.mlp_norm = "model.layers.{}.post_attention_layernorm";
  names.q = StrCat(attention, "q_proj");
  names.k = StrCat(attention, "k_proj");
  names.v = StrCat(attention, "v_proj");
  names.o = StrCat(attention, "o_proj");
  names.gate = StrCat(mlp, "gate_proj");
  names.up = StrCat(mlp, "up_proj");
  names.down = StrCat(mlp, "down_proj");
  names.final_norm = "model.norm";
  names.head = "lm_head.weight";
  names.prefix_aliases = {{"model.", ""}};  // saved without the head
  return names;
}

Result<int> HeadDim(const Json& config, const DecoderSpec& spec) {
  const Json* given = config.Find("head_dim");
  if (given && !given->is_null()) return RequireIn(config, "head_dim", 8, kMaxHeadDim);
  if (spec.hidden % spec.heads != 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'hidden_size' is ", spec.hidden, " and 'num_attention_heads' is ",
                       spec.heads, ", want a multiple of it or a 'head_dim'"));
  return spec.hidden / spec.heads;
}

struct NamedActivation {
  std::string_view name;
  kernels::Activation activation;
};
constexpr NamedActivation kActivations[] = {
    {"silu", kernels::Activation::kSilu},
    {"swish", kernels::Activation::kSilu},
    {"gelu_pytorch_tanh", kernels::Activation::kGeluTanh},
    {"gelu_new", kernels::Activation::kGeluTanh},
    {"gelu", kernels::Activation::kGeluErf},
    {"relu", kernels::Activation::kRelu},
    {"relu2", kernels::Activation::kRelu2},
};

// Whether each layer has the window: by 'layer_types' if present, else by the architecture's rule.
Result<std::vector<bool>> ReadSliding(const Json& config, const DecoderSpec& spec,
                                      const std::function<bool(int)>& slides) {
  std::vector<bool> sliding;
  const Json* types = config.Find("layer_types");
  if (!types || types->is_null()) {
    for (int layer = 0; layer < spec.layers; ++layer) sliding.push_back(slides(layer));
    return sliding;
  }
  if (!types->is_array() || types->array().size() != spec.layer_specs.size())
    return Fail(ErrorCode::kCorrupt, StrCat("'layer_types' must be a list of one type for each of ",
                                            spec.layers, " layers"));
  for (const Json& type : types->array()) {
    const std::string name = type.is_string() ? type.string() : "";
    if (name != "sliding_attention" && name != "full_attention")
      return Fail(ErrorCode::kUnsupported, StrCat("'layer_types' holds ", type.Dump().substr(0, 60),
                                                  ", want sliding_attention or full_attention"));
    sliding.push_back(name == "sliding_attention");
  }
  return sliding;
}

}  // namespace

Status ReadLlamaShape(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.layers, RequireIn(config, "num_hidden_layers", 1, kMaxLayers));
  PINION_ASSIGN(spec.hidden, RequireIn(config, "hidden_size", 8, kMaxHidden));
  PINION_ASSIGN(spec.heads, RequireIn(config, "num_attention_heads", 1, kMaxHeads));
  PINION_ASSIGN(spec.kv_heads, OptionalIn(config, "num_key_value_heads", 1, kMaxHeads, spec.heads));
  PINION_ASSIGN(spec.head_dim, HeadDim(config, spec));
  PINION_ASSIGN(spec.intermediate, RequireIn(config, "intermediate_size", 1, kMaxIntermediate));
  PINION_ASSIGN(spec.vocabulary, RequireIn(config, "vocab_size", 1, kMaxVocabulary));
  PINION_ASSIGN(spec.max_positions,
                OptionalIn(config, "max_position_embeddings", 1, kMaxPositions, 2048));
  PINION_ASSIGN(const double eps, Optional<double>(config, "rms_norm_eps", 1e-6));
  spec.norm_eps = static_cast<float>(eps);
  PINION_ASSIGN(spec.tied_head, Optional<bool>(config, "tie_word_embeddings", false));
  spec.layer_specs.assign(static_cast<size_t>(spec.layers), {});
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  spec.names = LlamaNames();
  PINION_ASSIGN(spec.activation, ReadActivation(config, "hidden_act"));
  return ReadRope(config, spec);
}

Status ReadEncoderShape(const Json& config, std::string_view eps_key, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const double eps, Require<double>(config, eps_key));
  spec.norm = NormKind::kLayer;
  spec.norm_eps = static_cast<float>(eps);
  spec.bidirectional = true;
  spec.tied_head = false;
  spec.names = {};
  return {};
}

Result<int> ReadLabels(const Json& config) {
  const Json* names = config.Find("id2label");
  if (!names || names->is_null()) return OptionalIn(config, "num_labels", 1, kMaxLabels, 2);
  const auto count = names->is_object() ? static_cast<int64_t>(names->object().size()) : 0;
  if (count < 1 || count > kMaxLabels)
    return Fail(ErrorCode::kCorrupt, StrCat("'id2label' must be an object of 1 to ", kMaxLabels,
                                            " labels, one for each id"));
  return static_cast<int>(count);
}

Result<kernels::Activation> ReadActivation(const Json& config, std::string_view key) {
  PINION_ASSIGN(const std::string name, Optional<std::string>(config, key, "silu"));
  std::vector<std::string> known;
  for (const NamedActivation& each : kActivations) {
    if (each.name == name) return each.activation;
    known.emplace_back(each.name);
  }
  return Fail(ErrorCode::kUnsupported,
              StrCat("'", key, "' is '", name.substr(0, 60), "', want one of ", Join(known, ", ")));
}

Status ReadWindows(const Json& config, DecoderSpec& spec, const std::function<bool(int)>& slides) {
  PINION_ASSIGN(const int window, OptionalIn(config, "sliding_window", 0, kMaxPositions, 0));
  PINION_ASSIGN(const std::vector<bool> sliding, ReadSliding(config, spec, slides));
  for (size_t i = 0; i < sliding.size(); ++i)
    if (sliding[i]) spec.layer_specs[i].window = window;
  const bool listed = config.Find("layer_types") && !config.Find("layer_types")->is_null();
  if (listed && window == 0 && std::find(sliding.begin(), sliding.end(), true) != sliding.end())
    return Fail(ErrorCode::kCorrupt,
                "'layer_types' holds sliding_attention, but there is no 'sliding_window'");
  return {};
}

std::string OlderLayerType(const Json& type) {
  const std::string name = type.is_string() ? type.string() : "";
  if (name == "linear_attention") return "mamba";
  return name == "full_attention" ? "attention" : name;
}

Result<float> OptionalPositive(const Json& config, std::string_view key, float fallback) {
  const Json* given = config.Find(key);
  if (!given || given->is_null()) return fallback;
  PINION_ASSIGN(const double value, Require<double>(config, key));
  // Within these bounds, products with activations stay normal float32 numbers.
  if (!(value >= 1e-12 && value <= 1e12))
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is ", value, ", want 1e-12 to 1e12"));
  return static_cast<float>(value);
}

}  // namespace pinion
