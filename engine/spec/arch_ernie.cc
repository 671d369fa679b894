// Ernie 4.5: Llama that rotates neighbouring pairs, with one switch for all biases. The mixtures
// have experts beside a shared MLP in a range of their layers.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadErnie45(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "use_bias", false));
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = bias;
  spec.ropes[0].interleaved = true;
  return {};
}

Status ReadErnieLayers(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int first, OptionalIn(config, "moe_layer_start_index", 0, kMaxLayers, 1));
  PINION_ASSIGN(const int last, OptionalIn(config, "moe_layer_end_index", -1, kMaxLayers, -1));
  PINION_ASSIGN(const int step, OptionalIn(config, "moe_layer_interval", 1, kMaxLayers, 1));
  for (int i = first; i < spec.layers && (last < 0 || i <= last); ++i)
    if ((i + 1) % step == 0) spec.layer_specs[static_cast<size_t>(i)].mlp = MlpKind::kExperts;
  return {};
}

Status ReadErnie45Moe(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadErnie45(config, spec));
  PINION_TRY(ReadErnieLayers(config, spec));
  MoeSpec& moe = spec.moe;
  PINION_ASSIGN(moe.router.experts, RequireIn(config, "moe_num_experts", 1, kMaxExperts));
  PINION_ASSIGN(moe.router.top_k, RequireIn(config, "moe_k", 1, kMaxExperts));
  moe.router.normalise = moe.router.correction = true;
  PINION_ASSIGN(moe.intermediate, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  PINION_ASSIGN(const int shared, OptionalIn(config, "moe_num_shared_experts", 0,
                                             kMaxIntermediate / moe.intermediate, 0));
  moe.shared_intermediate = shared * moe.intermediate;
  const std::string mlp = "model.layers.{}.mlp.";
  spec.names.router = mlp + "gate";
  spec.names.router_correction = mlp + "moe_statics.e_score_correction_bias";
  spec.names.expert_gate = mlp + "experts.{}.gate_proj";
  spec.names.expert_up = mlp + "experts.{}.up_proj";
  spec.names.expert_down = mlp + "experts.{}.down_proj";
  if (shared == 0) return {};
  spec.names.shared_gate = mlp + "shared_experts.gate_proj";
  spec.names.shared_up = mlp + "shared_experts.up_proj";
  spec.names.shared_down = mlp + "shared_experts.down_proj";
  return {};
}

constexpr NeutralField kErnieNeutral[] = {{"sliding_window", ""}};
constexpr NeutralField kErnieMoeNeutral[] = {
    {"sliding_window", ""}, {"hidden_act", "silu"}, {"use_bias", "false"}};

}  // namespace

extern const Architecture kErnie45, kErnie45Moe;
const Architecture kErnie45 = {
    "Ernie4_5ForCausalLM",
    "ernie4_5",
    "ERNIE 4.5",
    kErnieNeutral,
    ReadErnie45,
    {},
    R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "head_dim": 128,
        "max_position_embeddings": 131072, "tie_word_embeddings": true})"};

constexpr FieldAlias kErnieMoeAliases[] = {{"moe_k", "num_experts_per_tok"}};
const Architecture kErnie45Moe = {
    "Ernie4_5_MoeForCausalLM",
    "ernie4_5_moe",
    "ERNIE 4.5 MoE",
    kErnieMoeNeutral,
    ReadErnie45Moe,
    {},
    R"({"num_key_value_heads": 4, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "max_position_embeddings": 131072,
        "tie_word_embeddings": true, "moe_num_shared_experts": 2, "moe_k": 6})",
    {},
    kErnieMoeAliases};

}  // namespace pinion
