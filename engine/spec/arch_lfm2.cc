// LFM2 and its mixtures: gated short convolutions over three tokens in most layers, attention with
// normalised queries and keys in the others. Mixtures choose by sigmoids plus a learned bias.

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// By 'layer_types' or, in older configs, the numbers of the layers that attend; else all attend.
Status ReadConvolutions(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.conv.width, OptionalIn(config, "conv_L_cache", 2, kMaxConvWidth, 3));
  const Json* types = config.Find("layer_types");
  const Json* attending = config.Find("full_attn_idxs");
  const bool typed = types && !types->is_null(), numbered = attending && !attending->is_null();
  if (typed && (!types->is_array() || types->array().size() != spec.layer_specs.size()))
    return Fail(ErrorCode::kCorrupt, StrCat("'layer_types' must be a list of one type for each of ",
                                            spec.layers, " layers"));
  if (!typed && numbered && !attending->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'full_attn_idxs' is ", attending->type_name(), ", want a list of layers"));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    bool convolves = false;
    if (typed) {
      const Json& type = types->array()[i];
      convolves = type.is_string() && type.string() == "conv";
      if (!convolves && !(type.is_string() && type.string() == "full_attention"))
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'layer_types' holds ", type.Dump().substr(0, 60),
                           ", want conv or full_attention"));
    } else if (numbered) {
      const auto& list = attending->array();
      convolves = std::none_of(list.begin(), list.end(), [&](const Json& layer) {
        return layer.is_int() && layer.integer() == static_cast<int64_t>(i);
      });
    }
    if (convolves) spec.layer_specs[i].mixer = MixerKind::kShortConv;
  }
  return {};
}

Status ReadLfm(Json config, DecoderSpec& spec) {
  PINION_ASSIGN(const double eps, Optional<double>(config, "norm_eps", 1e-5));
  config.Set("rms_norm_eps", eps);
  PINION_TRY(ReadLlamaShape(config, spec));
  spec.qk_norm = QkNorm::kPerHead;
  const std::string layer = "model.layers.{}.", mlp = layer + "feed_forward.";
  TensorNames& names = spec.names;
  names.attention_norm = layer + "operator_norm";
  names.mlp_norm = layer + "ffn_norm";
  names.q_norm = layer + "self_attn.q_layernorm";
  names.k_norm = layer + "self_attn.k_layernorm";
  names.o = layer + "self_attn.out_proj";
  names.conv_in = layer + "conv.in_proj";
  names.conv = layer + "conv.conv";
  names.conv_o = layer + "conv.out_proj";
  names.gate = mlp + "w1";
  names.up = mlp + "w3";
  names.down = mlp + "w2";
  names.final_norm = "model.embedding_norm";
  return ReadConvolutions(config, spec);
}

// The stated width is that of an MLP without gate; one with a gate has two thirds of it.
Result<int> MlpWidth(const Json& config) {
  const Json* older = config.Find("block_ff_dim");
  const char* key = older && !older->is_null() ? "block_ff_dim" : "intermediate_size";
  PINION_ASSIGN(const int stated, RequireIn(config, key, 1, kMaxIntermediate));
  PINION_ASSIGN(const bool adjust, Optional<bool>(config, "block_auto_adjust_ff_dim", true));
  if (!adjust) return stated;
  PINION_ASSIGN(const float times, OptionalPositive(config, "block_ffn_dim_multiplier", 1));
  PINION_ASSIGN(const int unit, OptionalIn(config, "block_multiple_of", 1, kMaxIntermediate, 256));
  const int two_thirds = 2 * stated / 3;
  const double wanted = double{times} * two_thirds;
  if (!(wanted <= kMaxIntermediate))
    return Fail(ErrorCode::kCorrupt,
                StrCat("'block_ffn_dim_multiplier' is ", times, ", which makes an MLP of ", wanted,
                       ", want at most ", kMaxIntermediate));
  return (static_cast<int>(wanted) + unit - 1) / unit * unit;
}

Status ReadLfm2(const Json& given, DecoderSpec& spec) {
  Json config = given;
  PINION_ASSIGN(const int wide, MlpWidth(config));
  config.Set("intermediate_size", wide);
  return ReadLfm(std::move(config), spec);
}

Status ReadLfm2Moe(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLfm(config, spec));
  PINION_ASSIGN(const int dense, OptionalIn(config, "num_dense_layers", 0, kMaxLayers, 2));
  for (int i = dense; i < spec.layers; ++i)
    spec.layer_specs[static_cast<size_t>(i)].mlp = MlpKind::kExperts;
  RouterSpec& router = spec.moe.router;
  PINION_ASSIGN(router.experts, RequireIn(config, "num_experts", 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  router.score = RouterScore::kSigmoid;
  PINION_ASSIGN(router.normalise, Optional<bool>(config, "norm_topk_prob", true));
  PINION_ASSIGN(router.scale, OptionalPositive(config, "routed_scaling_factor", 1));
  PINION_ASSIGN(router.correction, Optional<bool>(config, "use_expert_bias", true));
  PINION_ASSIGN(spec.moe.intermediate,
                RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  const std::string mlp = "model.layers.{}.feed_forward.", expert = mlp + "experts.{}.";
  spec.names.router = mlp + "gate";
  if (router.correction) spec.names.router_correction = mlp + "expert_bias";
  spec.names.expert_gate = expert + "w1";
  spec.names.expert_up = expert + "w3";
  spec.names.expert_down = expert + "w2";
  return {};
}

constexpr NeutralField kLfmNeutral[] = {{"conv_bias", "false"}, {"hidden_act", "silu"}};
constexpr std::string_view kLfmReads[] = {"layer_types", "num_experts"};
constexpr const char* kLfmDefaults =
    R"({"num_key_value_heads": 8, "rope_theta": 1000000.0, "max_position_embeddings": 128000,
        "tie_word_embeddings": true})";

}  // namespace

extern const Architecture kLfm2, kLfm2Moe;
const Architecture kLfm2 = {"Lfm2ForCausalLM", "lfm2",    "LFM2",      kLfmNeutral,
                            ReadLfm2,          kLfmReads, kLfmDefaults};
const Architecture kLfm2Moe = {"Lfm2MoeForCausalLM", "lfm2_moe", "LFM2 MoE",  kLfmNeutral,
                               ReadLfm2Moe,          kLfmReads,  kLfmDefaults};

}  // namespace pinion
