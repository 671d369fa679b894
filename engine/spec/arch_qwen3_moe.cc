// Qwen3-MoE: Llama's attention with a norm over each query and key head; experts instead of the MLP
// in all layers or in every n-th.

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// A dense MLP stays in the layers that 'mlp_only_layers' lists, and in all but every
// 'decoder_sparse_step'-th.
Status ReadMlpKinds(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int step, OptionalIn(config, "decoder_sparse_step", 1, kMaxLayers, 1));
  std::vector<int64_t> dense;
  if (const Json* list = config.Find("mlp_only_layers"); list && !list->is_null()) {
    if (!list->is_array())
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'mlp_only_layers' is ", list->type_name(), ", want a list"));
    for (const Json& layer : list->array()) {
      if (!layer.is_int())
        return Fail(ErrorCode::kCorrupt,
                    StrCat("'mlp_only_layers' holds ", layer.Dump(), ", want layers' numbers"));
      dense.push_back(layer.integer());
    }
  }
  for (int i = 0; i < spec.layers; ++i) {
    const bool listed = std::find(dense.begin(), dense.end(), i) != dense.end();
    if (!listed && (i + 1) % step == 0)
      spec.layer_specs[static_cast<size_t>(i)].mlp = MlpKind::kExperts;
  }
  return {};
}

// All layers have the window, or none.
Status ReadQwen3MoeWindows(Json config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool windows, Optional<bool>(config, "use_sliding_window", false));
  if (!windows) config.Set("sliding_window", nullptr);
  return ReadWindows(config, spec, [](int) { return true; });
}

Status ReadQwen3Moe(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadQwen3MoeWindows(config, spec));
  PINION_TRY(ReadMlpKinds(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  spec.qk_norm = QkNorm::kPerHead;
  RouterSpec& router = spec.moe.router;
  // transformers 5 writes 'num_local_experts'.
  const char* experts = config.Find("num_local_experts") ? "num_local_experts" : "num_experts";
  PINION_ASSIGN(router.experts, RequireIn(config, experts, 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  PINION_ASSIGN(router.normalise, Optional<bool>(config, "norm_topk_prob", false));
  PINION_ASSIGN(spec.moe.intermediate,
                RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  const std::string layer = "model.layers.{}.", mlp = layer + "mlp.";
  spec.names.q_norm = layer + "self_attn.q_norm";
  spec.names.k_norm = layer + "self_attn.k_norm";
  spec.names.router = mlp + "gate";
  spec.names.expert_gate = mlp + "experts.{}.gate_proj";
  spec.names.expert_up = mlp + "experts.{}.up_proj";
  spec.names.expert_down = mlp + "experts.{}.down_proj";
  return {};
}

constexpr NeutralField kQwen3MoeNeutral[] = {{"hidden_act", "silu"}};
constexpr std::string_view kQwen3MoeReads[] = {"mlp_only_layers", "num_experts",
                                               "num_local_experts"};

}  // namespace

extern const Architecture kQwen3Moe;
const Architecture kQwen3Moe = {
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    "Qwen3 MoE",
    kQwen3MoeNeutral,
    ReadQwen3Moe,
    kQwen3MoeReads,
    R"({"num_key_value_heads": 4, "max_position_embeddings": 32768, "sliding_window": 4096,
        "num_experts_per_tok": 8})"};

}  // namespace pinion
