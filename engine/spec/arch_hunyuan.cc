// HunYuan: Llama with a norm of each query and key head after its rotation, and a rope that calls
// itself dynamic but has the same base for every length. The mixtures have experts beside a shared
// MLP in every layer.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// Scales the base by 'alpha', if there is one.
Status ReadAlpha(const Json& config, DecoderSpec& spec) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* parameters = config.Find(key);
    if (!parameters || !parameters->is_object() || !parameters->Find("alpha")) continue;
    PINION_ASSIGN(const float alpha, OptionalPositive(*parameters, "alpha", 1));
    RopeSpec& rope = spec.ropes[0];
    PINION_ASSIGN(RopeSpec plain, ReadRopeParameters(config, Json::MakeObject(), spec));
    PINION_ASSIGN(const double theta, Optional<double>(*parameters, "rope_theta", plain.theta));
    if (plain.dim <= 2)
      return Fail(ErrorCode::kUnsupported, "'alpha' needs more than 2 rotated elements");
    plain.theta = theta * std::pow(double{alpha}, plain.dim / (plain.dim - 2.0));
    rope = plain;
    return {};
  }
  return {};
}

Status ReadHunYuan(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  spec.qk_norm = QkNorm::kPerHead;
  spec.qk_norm_after_rope = true;
  spec.names.q_norm = "model.layers.{}.self_attn.query_layernorm";
  spec.names.k_norm = "model.layers.{}.self_attn.key_layernorm";
  return ReadAlpha(config, spec);
}

// A number, or a list of one for each layer, which must be all the same.
Result<int> SameInAllLayers(const Json& config, std::string_view key, int64_t high) {
  const Json* given = config.Find(key);
  if (!given || !given->is_array()) return RequireIn(config, key, 1, high);
  const Json::Array& list = given->array();
  for (const Json& each : list)
    if (each != list[0])
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'", key, "' differs from layer to layer, want one number for all"));
  Json one = Json::MakeObject();
  one.Set(key, list.empty() ? Json() : list[0]);
  return RequireIn(one, key, 1, high);
}

Status ReadHunYuanMoe(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadHunYuan(config, spec));
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  MoeSpec& moe = spec.moe;
  PINION_ASSIGN(moe.router.experts, SameInAllLayers(config, "num_experts", kMaxExperts));
  PINION_ASSIGN(moe.router.top_k, SameInAllLayers(config, "moe_topk", kMaxExperts));
  moe.router.normalise = true;
  moe.intermediate = moe.shared_intermediate = spec.intermediate;
  const std::string mlp = "model.layers.{}.mlp.";
  spec.names.router = mlp + "gate.wg";
  spec.names.expert_gate = mlp + "experts.{}.gate_proj";
  spec.names.expert_up = mlp + "experts.{}.up_proj";
  spec.names.expert_down = mlp + "experts.{}.down_proj";
  spec.names.shared_gate = mlp + "shared_mlp.gate_proj";
  spec.names.shared_up = mlp + "shared_mlp.up_proj";
  spec.names.shared_down = mlp + "shared_mlp.down_proj";
  return {};
}

constexpr NeutralField kHunYuanNeutral[] = {
    {"sliding_window", ""}, {"mlp_bias", "false"}, {"use_qk_norm", "true"}, {"use_cla", "false"}};
constexpr NeutralField kHunYuanMoeNeutral[] = {
    {"sliding_window", ""}, {"mlp_bias", "false"},  {"use_qk_norm", "true"},
    {"use_cla", "false"},   {"hidden_act", "silu"}, {"use_mixed_mlp_moe", "true"}};
constexpr std::string_view kHunYuanReads[] = {"use_qk_norm"};
constexpr std::string_view kHunYuanMoeReads[] = {"use_qk_norm", "num_experts"};

}  // namespace

extern const Architecture kHunYuan, kHunYuanMoe;
const Architecture kHunYuan = {"HunYuanDenseV1ForCausalLM",
                               "hunyuan_v1_dense",
                               "HunYuan",
                               kHunYuanNeutral,
                               ReadHunYuan,
                               kHunYuanReads,
                               R"({"rms_norm_eps": 1e-05})"};

constexpr FieldAlias kHunYuanMoeAliases[] = {{"moe_topk", "num_experts_per_tok"}};
const Architecture kHunYuanMoe = {"HunYuanMoEV1ForCausalLM",
                                  "hunyuan_v1_moe",
                                  "HunYuan MoE",
                                  kHunYuanMoeNeutral,
                                  ReadHunYuanMoe,
                                  kHunYuanMoeReads,
                                  R"({"rms_norm_eps": 1e-05})",
                                  {},
                                  kHunYuanMoeAliases};

}  // namespace pinion
