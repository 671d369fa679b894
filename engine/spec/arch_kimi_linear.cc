// Kimi Linear: in three of four layers Kimi Delta Attention, in the others latent attention without
// any position; the first layer is dense, the others have DeepSeek's experts under other names.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// Its own names for the fields of DeepSeek's experts, and for the longest sequence.
constexpr FieldAlias kKimiRenamed[] = {{"num_experts", "n_routed_experts"},
                                       {"num_experts_per_token", "num_experts_per_tok"},
                                       {"num_shared_experts", "n_shared_experts"},
                                       {"moe_renormalize", "norm_topk_prob"},
                                       {"moe_router_activation_func", "scoring_func"},
                                       {"num_expert_group", "n_group"},
                                       {"model_max_length", "max_position_embeddings"}};

Json WithDeepSeeksNames(Json config) {
  for (const auto& [own, common] : kKimiRenamed)
    if (const Json* value = config.Find(own)) config.Set(std::string(common), Json(*value));
  return config;
}

// 'kda_layers' and 'full_attn_layers' together name every layer once; they count from 1.
Status ReadKimiMixers(const Json& lists, DecoderSpec& spec) {
  std::vector<bool> known(spec.layer_specs.size());
  for (const char* key : {"kda_layers", "full_attn_layers"}) {
    const Json* list = lists.Find(key);
    if (!list || !list->is_array())
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'", key, "' must be a list of layers from 1 to ", spec.layers));
    for (const Json& entry : list->array()) {
      const int64_t layer = entry.is_int() ? entry.integer() : 0;
      if (layer < 1 || layer > spec.layers || known[static_cast<size_t>(layer) - 1])
        return Fail(ErrorCode::kCorrupt,
                    StrCat("'", key, "' holds ", entry.Dump().substr(0, 60),
                           ", want each layer from 1 to ", spec.layers, " once"));
      known[static_cast<size_t>(layer) - 1] = true;
      if (list == lists.Find("kda_layers"))
        spec.layer_specs[static_cast<size_t>(layer) - 1].mixer = MixerKind::kDeltaNet;
    }
  }
  for (size_t i = 0; i < known.size(); ++i)
    if (!known[i])
      return Fail(ErrorCode::kCorrupt, StrCat("layer ", i + 1,
                                              " is in neither 'kda_layers' nor "
                                              "'full_attn_layers', want it in one of them"));
  return {};
}

void NameKimiDelta(TensorNames& names) {
  const std::string part = "model.layers.{}.self_attn.";
  names.delta_q = part + "q_proj";
  names.delta_k = part + "k_proj";
  names.delta_v = part + "v_proj";
  names.delta_conv_q = part + "q_conv1d";
  names.delta_conv_k = part + "k_conv1d";
  names.delta_conv_v = part + "v_conv1d";
  names.delta_a_down = part + "f_a_proj";
  names.delta_a_up = part + "f_b_proj";
  names.delta_z_down = part + "g_a_proj";
  names.delta_z_up = part + "g_b_proj";
  names.delta_b = part + "b_proj";
  names.delta_decay = part + "A_log";
  names.delta_dt_bias = part + "dt_bias";
  names.delta_norm = part + "o_norm";
  names.delta_o = part + "o_proj";
}

// config.json's names of Kimi Delta Attention's numbers.
struct KimiKeys {
  std::string_view heads, head_dim, conv_width;
};

Status ReadKimiNumbers(const Json& config, const KimiKeys& keys, DeltaSpec& delta) {
  PINION_ASSIGN(delta.key_heads, RequireIn(config, keys.heads, 1, kMaxHeads));
  PINION_ASSIGN(delta.key_dim, RequireIn(config, keys.head_dim, 8, kMaxStateDim));
  PINION_ASSIGN(delta.conv_width, OptionalIn(config, keys.conv_width, 2, kMaxConvWidth, 4));
  return {};
}

// As transformers writes it: numbers beside the others, and a type for each layer.
Status ReadKimiLayerTypes(const Json& config, DecoderSpec& spec) {
  const Json* types = config.Find("layer_types");
  if (!types || !types->is_array() || types->array().size() != spec.layer_specs.size())
    return Fail(ErrorCode::kCorrupt,
                StrCat("without 'linear_attn_config', 'layer_types' must be a list of one type for "
                       "each of ",
                       spec.layers, " layers"));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const std::string type = OlderLayerType(types->array()[i]);
    if (type != "mamba" && type != "attention")
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'layer_types' holds ", types->array()[i].Dump().substr(0, 60),
                         ", want linear_attention or full_attention"));
    if (type == "mamba") spec.layer_specs[i].mixer = MixerKind::kDeltaNet;
  }
  constexpr KimiKeys kKeys = {"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"};
  return ReadKimiNumbers(config, kKeys, spec.delta);
}

// As published: an object of its own.
Status ReadKimiObject(const Json& own, DecoderSpec& spec) {
  if (!own.is_object()) return Fail(ErrorCode::kCorrupt, "'linear_attn_config' must be an object");
  constexpr KimiKeys kKeys = {"num_heads", "head_dim", "short_conv_kernel_size"};
  PINION_TRY(ReadKimiNumbers(own, kKeys, spec.delta));
  return ReadKimiMixers(own, spec);
}

Status ReadKimiDelta(const Json& config, DecoderSpec& spec) {
  const Json* own = config.Find("linear_attn_config");
  PINION_TRY(own && !own->is_null() ? ReadKimiObject(*own, spec)
                                    : ReadKimiLayerTypes(config, spec));
  DeltaSpec& delta = spec.delta;
  delta.value_heads = delta.key_heads;
  delta.value_dim = delta.z_rank = delta.a_rank = delta.key_dim;
  delta.decay_per_channel = true;
  delta.z_activation = kernels::Activation::kSigmoid;
  NameKimiDelta(spec.names);
  return {};
}

void NameKimiExperts(TensorNames& names) {
  const std::string moe = "model.layers.{}.block_sparse_moe.";
  names.router = moe + "gate";
  names.router_correction = moe + "gate.e_score_correction_bias";
  names.expert_gate = moe + "experts.{}.w1";
  names.expert_up = moe + "experts.{}.w3";
  names.expert_down = moe + "experts.{}.w2";
  if (names.shared_gate.empty()) return;
  names.shared_gate = moe + "shared_experts.gate_proj";
  names.shared_up = moe + "shared_experts.up_proj";
  names.shared_down = moe + "shared_experts.down_proj";
}

Status ReadKimiLinear(const Json& given, DecoderSpec& spec) {
  const Json config = WithRotatedHead(WithDeepSeeksNames(given));
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadLatentAttention(config, spec));
  spec.tied_head = false;  // whatever the config says, as in transformers
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layer_specs) layer.rope = -1;
  PINION_TRY(ReadKimiDelta(config, spec));
  PINION_TRY(ReadGroupedExperts(config, "noaux_tc", "sigmoid", spec));
  NameKimiExperts(spec.names);
  // As transformers writes it.
  spec.names.prefix_aliases.emplace_back("model.layers.{}.mlp.",
                                         "model.layers.{}.block_sparse_moe.");
  return {};
}

constexpr NeutralField kKimiLinearNeutral[] = {
    {"hidden_act", "silu"},       {"attention_bias", "false"}, {"mla_use_nope", "true"},
    {"use_grouped_topk", "true"}, {"rope_scaling", ""},        {"topk_method", "noaux_tc"}};
constexpr std::string_view kKimiLinearReads[] = {"kv_lora_rank", "layer_types", "num_experts",
                                                 "q_lora_rank"};

}  // namespace

extern const Architecture kKimiLinear;
const Architecture kKimiLinear = {
    "KimiLinearForCausalLM",
    "kimi_linear",
    "Kimi Linear",
    kKimiLinearNeutral,
    ReadKimiLinear,
    kKimiLinearReads,
    R"({"rms_norm_eps": 1e-05, "max_position_embeddings": 1048576, "num_experts_per_tok": 8,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": true,
        "routed_scaling_factor": 2.446})",
    {},
    kKimiRenamed};

}  // namespace pinion
