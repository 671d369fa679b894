// Mixtral: Llama's attention, with a window in every layer if the config has one; experts instead
// of the MLP.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadMixtral(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadWindows(config, spec, [](int) { return true; }));
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  RouterSpec& router = spec.moe.router;
  PINION_ASSIGN(router.experts, RequireIn(config, "num_local_experts", 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  router.normalise = true;
  spec.moe.intermediate = spec.intermediate;
  const std::string moe = "model.layers.{}.block_sparse_moe.";
  spec.names.router = moe + "gate";
  spec.names.expert_gate = moe + "experts.{}.w1";
  spec.names.expert_up = moe + "experts.{}.w3";
  spec.names.expert_down = moe + "experts.{}.w2";
  return {};
}

constexpr NeutralField kMixtralNeutral[] = {{"hidden_act", "silu"}};
constexpr std::string_view kMixtralReads[] = {"num_local_experts"};

}  // namespace

extern const Architecture kMixtral;
const Architecture kMixtral = {
    "MixtralForCausalLM",
    "mixtral",
    "Mixtral",
    kMixtralNeutral,
    ReadMixtral,
    kMixtralReads,
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
        "max_position_embeddings": 131072, "num_local_experts": 8, "num_experts_per_tok": 2})"};

}  // namespace pinion
