// Gemma 4: norms before and after each part, a norm of each query, key and value head, scores that
// are not scaled. Its layers without window have wider heads, fewer keys and values, keys as values
// and a rope that turns only a part of the pairs. Each layer ends with a multiplication. Mixtures
// have experts beside the MLP; small models have inputs of each layer by token, and last layers
// that share keys and values.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"
#include "engine/spec/attention_spec.h"

namespace pinion {
namespace {

void NameTensors(TensorNames& names) {
  const std::string layer = "model.layers.{}.";
  names.q_norm = StrCat(layer, "self_attn.q_norm");
  names.k_norm = StrCat(layer, "self_attn.k_norm");
  names.attention_post_norm = StrCat(layer, "post_attention_layernorm");
  names.mlp_norm = StrCat(layer, "pre_feedforward_layernorm");
  names.mlp_post_norm = StrCat(layer, "post_feedforward_layernorm");
  names.layer_scale = StrCat(layer, "layer_scalar");
}

// The layer that a key of 'per_layer_config' names.
Result<size_t> ConfiguredLayer(const std::string& key, const DecoderSpec& spec) {
  const auto layer = ParseInt(key, "");
  if (layer && *layer >= 0 && *layer < spec.layers) return static_cast<size_t>(*layer);
  return Fail(ErrorCode::kCorrupt, StrCat("'per_layer_config' names layer '", key.substr(0, 60),
                                          "', want layers from 0 to ", spec.layers - 1));
}

// As transformers 5.24 writes it: the differences from the rest of config.json, for each layer in
// which something does.
Status ReadConfiguredHeads(const Json& layers, DecoderSpec& spec) {
  if (!layers.is_object())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'per_layer_config' is ", layers.type_name(), ", want an object"));
  for (const auto& [key, own] : layers.object()) {
    PINION_ASSIGN(const size_t index, ConfiguredLayer(key, spec));
    LayerSpec& layer = spec.layer_specs[index];
    for (const auto& [field, value] : own.is_object() ? own.object() : Json::Object{})
      if (field != "head_dim" && field != "num_key_value_heads")
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'per_layer_config' gives layer ", index, " a '", field.substr(0, 60),
                           "' of its own, want head_dim and num_key_value_heads only"));
    PINION_ASSIGN(layer.head_dim, OptionalIn(own, "head_dim", 8, kMaxHeadDim, spec.head_dim));
    PINION_ASSIGN(layer.kv_heads,
                  OptionalIn(own, "num_key_value_heads", 1, kMaxHeads, spec.kv_heads));
  }
  return {};
}

// As published: fields of their own for layers without window.
Status ReadGlobalHeads(const Json& config, bool keys_as_values, DecoderSpec& spec) {
  PINION_ASSIGN(const int head_dim,
                OptionalIn(config, "global_head_dim", 8, kMaxHeadDim, spec.head_dim));
  int kv_heads = spec.kv_heads;
  if (keys_as_values) {
    PINION_ASSIGN(kv_heads,
                  OptionalIn(config, "num_global_key_value_heads", 1, kMaxHeads, spec.kv_heads));
  }
  for (LayerSpec& layer : spec.layer_specs) {
    if (layer.window > 0) continue;
    layer.head_dim = head_dim;
    layer.kv_heads = kv_heads;
  }
  return {};
}

// The width of the heads of the layers with or without a window, which have a rope in common.
Result<int> CommonHead(const DecoderSpec& spec, bool windowed) {
  int common = 0;
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    if ((spec.layer_specs[i].window > 0) != windowed) continue;
    const int own = LayerHeads(spec, i).head_dim;
    if (common > 0 && common != own)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'per_layer_config' gives layer ", i, " heads of ", own, ", want ", common,
                         " as in the other layers ", windowed ? "with" : "without", " a window"));
    common = own;
  }
  return common > 0 ? common : spec.head_dim;
}

// The heads of each layer, and the rope of those without window.
Status ReadGemma4Heads(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool keys_as_values, Optional<bool>(config, "attention_k_eq_v", false));
  for (LayerSpec& layer : spec.layer_specs) layer.keys_as_values = keys_as_values && !layer.window;
  const Json* layers = config.Find("per_layer_config");
  PINION_TRY(layers && !layers->is_null() ? ReadConfiguredHeads(*layers, spec)
                                          : ReadGlobalHeads(config, keys_as_values, spec));
  PINION_ASSIGN(const int windowed, CommonHead(spec, true));
  if (windowed != spec.head_dim)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'per_layer_config' gives layers with a window heads of ", windowed,
                       ", want 'head_dim', ", spec.head_dim));
  DecoderSpec wide = spec;
  PINION_ASSIGN(wide.head_dim, CommonHead(spec, false));
  const Json full = WithFullRope(config);
  const Json* parameters = full.Find("rope_parameters");
  PINION_ASSIGN(
      spec.ropes[0],
      ReadRopeParameters(
          full, parameters && !parameters->is_null() ? *parameters : Json::MakeObject(), wide));
  return {};
}

// The mixture: experts beside an MLP that every token takes, each with norms of its own.
Status ReadGemmaMixture(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool enabled, Optional<bool>(config, "enable_moe_block", false));
  if (!enabled) return {};
  MoeSpec& moe = spec.moe;
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  PINION_ASSIGN(moe.router.experts, RequireIn(config, "num_experts", 1, kMaxExperts));
  PINION_ASSIGN(moe.router.top_k, RequireIn(config, "top_k_experts", 1, kMaxExperts));
  PINION_ASSIGN(moe.intermediate, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  moe.router.normalise = true;
  moe.shared_intermediate = spec.intermediate;
  moe.apart = true;
  moe.tensors = ExpertTensors::kConsecutive;
  TensorNames& names = spec.names;
  const std::string layer = "model.layers.{}.";
  names.shared_gate = names.gate;
  names.shared_up = names.up;
  names.shared_down = names.down;
  names.shared_post_norm = layer + "post_feedforward_layernorm_1";
  names.expert_norm = layer + "pre_feedforward_layernorm_2";
  names.expert_post_norm = layer + "post_feedforward_layernorm_2";
  names.experts_gate_up = layer + "experts.gate_up_proj";
  names.experts_down = layer + "experts.down_proj";
  names.router = layer + "router.proj";
  names.router_norm = layer + "router.scale";
  names.router_expert_scale = layer + "router.per_expert_scale";
  return CheckRouter(moe.router);
}

// Layers that share keys and values have MLPs twice as wide.
Status ReadDoubleWidth(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool wide, Optional<bool>(config, "use_double_wide_mlp", false));
  if (!wide) return {};
  if (spec.moe.router.experts > 0)
    return Fail(ErrorCode::kUnsupported,
                "'use_double_wide_mlp' is true beside 'enable_moe_block', want one of them");
  for (LayerSpec& layer : spec.layer_specs)
    if (layer.kv_from >= 0) layer.intermediate = 2 * spec.intermediate;
  return {};
}

constexpr std::string_view kGemma4Ropes =
    R"({"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                           "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})";

Status ReadGemma4(const Json& given, DecoderSpec& spec) {
  const Json config = WithDefaultRope(given, kGemma4Ropes);
  PINION_TRY(ReadLlamaShape(WithFullRope(config), spec));
  PINION_ASSIGN(spec.activation, ReadActivation(config, "hidden_activation"));
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1;
  spec.qk_norm = QkNorm::kPerHead;
  spec.value_norm = true;
  PINION_ASSIGN(spec.logit_soft_cap, OptionalPositive(config, "final_logit_softcapping", 0));
  NameTensors(spec.names);
  // Five layers with a window, one without; the last never has one.
  const int last = spec.layers - 1;
  PINION_TRY(ReadWindows(config, spec, [last](int i) { return i % 6 != 5 && i != last; }));
  PINION_TRY(ReadGemma4Heads(config, spec));
  PINION_TRY(ReadGemmaMixture(config, spec));
  PINION_TRY(ReadLayerInputs(config, spec));
  PINION_TRY(ShareKeysAndValues(config, spec));
  PINION_TRY(ReadDoubleWidth(config, spec));
  return AddWindowRope(config, Json::Object{{"rope_theta", 10000.0}}, spec);
}

constexpr NeutralField kNeutral[] = {{"attention_bias", "false"},
                                     {"use_bidirectional_attention", "false|vision"}};
constexpr std::string_view kReads[] = {"layer_types",
                                       "final_logit_softcapping",
                                       "enable_moe_block",
                                       "num_experts",
                                       "top_k_experts",
                                       "moe_intermediate_size",
                                       "use_bidirectional_attention",
                                       "per_layer_config"};

}  // namespace

extern const Architecture kGemma4;
constexpr FieldAlias kGemma4Aliases[] = {{"top_k_experts", "num_experts_per_tok"}};
const Architecture kGemma4 = {"Gemma4ForCausalLM",
                              "gemma4_text",
                              "Gemma 4",
                              kNeutral,
                              ReadGemma4,
                              kReads,
                              R"({"head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
        "max_position_embeddings": 131072, "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": true})",
                              "Gemma4ForConditionalGeneration",
                              kGemma4Aliases};

}  // namespace pinion
