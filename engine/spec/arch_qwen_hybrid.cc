// Qwen3-Next, Qwen3.5 and 3.6: in three of four layers Gated DeltaNet, in the others attention with
// an output gate and a rope over the first quarter of each head. Every norm but DeltaNet's own
// stores its weight less 1. Mixtures have a shared expert with a gate of its own.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// Of text alone all axes of a multi-axis rope have the same position, which makes it a plain one.
Json WithPlainRope(Json config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* given = config.Find(key);
    if (!given || !given->is_object()) continue;
    Json rope = *given;
    rope.Set("mrope_section", nullptr);
    config.Set(key, std::move(rope));
  }
  return config;
}

// By 'layer_types' if present, else all but every n-th layer are recurrent.
Status ReadMixers(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int interval,
                OptionalIn(config, "full_attention_interval", 1, kMaxLayers, 4));
  const Json* types = config.Find("layer_types");
  const bool listed = types && !types->is_null();
  if (listed && (!types->is_array() || types->array().size() != spec.layer_specs.size()))
    return Fail(ErrorCode::kCorrupt, StrCat("'layer_types' must be a list of one type for each of ",
                                            spec.layers, " layers"));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    bool recurrent = (i + 1) % static_cast<size_t>(interval) != 0;
    if (listed) {
      const Json& type = types->array()[i];
      recurrent = type.is_string() && type.string() == "linear_attention";
      if (!recurrent && !(type.is_string() && type.string() == "full_attention"))
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'layer_types' holds ", type.Dump().substr(0, 60),
                           ", want linear_attention or full_attention"));
    }
    if (recurrent) spec.layer_specs[i].mixer = MixerKind::kDeltaNet;
  }
  return {};
}

Status ReadDelta(const Json& config, DecoderSpec& spec) {
  DeltaSpec& delta = spec.delta;
  PINION_ASSIGN(delta.key_heads, OptionalIn(config, "linear_num_key_heads", 1, kMaxHeads, 16));
  PINION_ASSIGN(delta.value_heads, OptionalIn(config, "linear_num_value_heads", 1, kMaxHeads, 32));
  PINION_ASSIGN(delta.key_dim, OptionalIn(config, "linear_key_head_dim", 8, kMaxStateDim, 128));
  PINION_ASSIGN(delta.value_dim, OptionalIn(config, "linear_value_head_dim", 8, kMaxStateDim, 128));
  PINION_ASSIGN(delta.conv_width,
                OptionalIn(config, "linear_conv_kernel_dim", 2, kMaxConvWidth, 4));
  const std::string part = "model.layers.{}.linear_attn.";
  spec.names.delta_conv = part + "conv1d";
  spec.names.delta_decay = part + "A_log";
  spec.names.delta_dt_bias = part + "dt_bias";
  spec.names.delta_norm = part + "norm";
  spec.names.delta_o = part + "out_proj";
  return ReadMixers(config, spec);
}

Status ReadHybrid(const Json& given, DecoderSpec& spec) {
  const Json config = WithPlainRope(given);
  PINION_TRY(ReadLlamaShape(config, spec));
  spec.norm_offset = 1;
  spec.qk_norm = QkNorm::kPerHead;
  spec.attention_gate = true;
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  return ReadDelta(config, spec);
}

Status ReadMixture(const Json& config, DecoderSpec& spec) {
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  MoeSpec& moe = spec.moe;
  PINION_ASSIGN(moe.router.experts, RequireIn(config, "num_experts", 1, kMaxExperts));
  PINION_ASSIGN(moe.router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  PINION_ASSIGN(moe.router.normalise, Optional<bool>(config, "norm_topk_prob", true));
  PINION_ASSIGN(moe.intermediate, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  PINION_ASSIGN(moe.shared_intermediate,
                RequireIn(config, "shared_expert_intermediate_size", 1, kMaxIntermediate));
  moe.shared_router = true;
  const std::string mlp = "model.layers.{}.mlp.", shared = mlp + "shared_expert.";
  spec.names.router = mlp + "gate";
  spec.names.shared_router = mlp + "shared_expert_gate";
  spec.names.shared_gate = shared + "gate_proj";
  spec.names.shared_up = shared + "up_proj";
  spec.names.shared_down = shared + "down_proj";
  return {};
}

Status ReadQwen3Next(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadHybrid(config, spec));
  PINION_TRY(ReadMixture(config, spec));
  const std::string layer = "model.layers.{}.", experts = layer + "mlp.experts.{}.";
  spec.names.delta_qkvz = layer + "linear_attn.in_proj_qkvz";
  spec.names.delta_ba = layer + "linear_attn.in_proj_ba";
  spec.names.expert_gate = experts + "gate_proj";
  spec.names.expert_up = experts + "up_proj";
  spec.names.expert_down = experts + "down_proj";
  return {};
}

Status ReadQwen35(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadHybrid(config, spec));
  const std::string part = "model.layers.{}.linear_attn.";
  spec.names.delta_qkv = part + "in_proj_qkv";
  spec.names.delta_z = part + "in_proj_z";
  spec.names.delta_b = part + "in_proj_b";
  spec.names.delta_a = part + "in_proj_a";
  return {};
}

// Its configs have no 'intermediate_size', since no layer is dense.
Status ReadQwen35Moe(const Json& given, DecoderSpec& spec) {
  Json config = given;
  PINION_ASSIGN(const int wide, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  if (!config.Find("intermediate_size")) config.Set("intermediate_size", wide);
  PINION_TRY(ReadQwen35(config, spec));
  PINION_TRY(ReadMixture(config, spec));
  spec.moe.tensors = ExpertTensors::kConsecutive;
  spec.names.experts_gate_up = "model.layers.{}.mlp.experts.gate_up_proj";
  spec.names.experts_down = "model.layers.{}.mlp.experts.down_proj";
  // As transformers and FP8 files have them: FindModel sees which names a folder has.
  const std::string apart = "model.layers.{}.mlp.experts.{}.";
  spec.names.expert_gate = apart + "gate_proj";
  spec.names.expert_up = apart + "up_proj";
  spec.names.expert_down = apart + "down_proj";
  return {};
}

constexpr NeutralField kHybridNeutral[] = {
    {"hidden_act", "silu"},          {"attention_bias", "false"},  {"attn_output_gate", "true"},
    {"use_sliding_window", "false"}, {"decoder_sparse_step", "1"}, {"mamba_ssm_dtype", "float32"}};
constexpr std::string_view kHybridReads[] = {"layer_types", "num_experts"};
constexpr std::string_view kTwoHeadsDefaults =
    R"({"num_key_value_heads": 2, "partial_rotary_factor": 0.25, "head_dim": 256,
        "max_position_embeddings": 32768})";
constexpr std::string_view kFourHeadsDefaults =
    R"({"num_key_value_heads": 4, "partial_rotary_factor": 0.25, "head_dim": 256,
        "max_position_embeddings": 32768})";

}  // namespace

extern const Architecture kQwen3Next, kQwen35, kQwen35Moe;
const Architecture kQwen3Next = {"Qwen3NextForCausalLM", "qwen3_next",  "Qwen3-Next",
                                 kHybridNeutral,         ReadQwen3Next, kHybridReads,
                                 kTwoHeadsDefaults};
const Architecture kQwen35 = {
    "Qwen3_5ForCausalLM", "qwen3_5_text", "Qwen3.5, 3.6",     kHybridNeutral,
    ReadQwen35,           kHybridReads,   kFourHeadsDefaults, "Qwen3_5ForConditionalGeneration"};
const Architecture kQwen35Moe = {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
                                 "Qwen3.5, 3.6 MoE",      kHybridNeutral,
                                 ReadQwen35Moe,           kHybridReads,
                                 kTwoHeadsDefaults,       "Qwen3_5MoeForConditionalGeneration"};

}  // namespace pinion
