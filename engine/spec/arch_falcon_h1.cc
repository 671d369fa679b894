// Falcon-H1: attention and Mamba-2 side by side in every layer, with a multiplier for almost every
// product. Those before attention's projections, which are linear, are part of those that follow.

#include <array>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// A list of `count` multipliers; absent: ones.
template <size_t count>
Result<std::array<float, count>> ReadFactors(const Json& config, std::string_view key) {
  std::array<float, count> factors;
  factors.fill(1);
  const Json* list = config.Find(key);
  if (!list || list->is_null()) return factors;
  if (!list->is_array() || list->array().size() != count)
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is ", list->Dump().substr(0, 60),
                                            ", want a list of ", count, " numbers"));
  for (size_t i = 0; i < count; ++i) {
    Json one = Json::MakeObject();
    one.Set(key, list->array()[i]);
    PINION_ASSIGN(factors[i], OptionalPositive(one, key, 1));
  }
  return factors;
}

Status ReadFalconMultipliers(const Json& config, DecoderSpec& spec) {
  const auto factor = [&](std::string_view key) { return OptionalPositive(config, key, 1); };
  PINION_ASSIGN(spec.embedding_multiplier, factor("embedding_multiplier"));
  PINION_ASSIGN(spec.logit_multiplier, factor("lm_head_multiplier"));
  PINION_ASSIGN(const float input, factor("attention_in_multiplier"));
  PINION_ASSIGN(const float output, factor("attention_out_multiplier"));
  PINION_ASSIGN(const float key, factor("key_multiplier"));
  spec.attention_scale *= input * input * key;  // queries and keys
  spec.attention_multiplier = input * output;   // values, then the result
  PINION_ASSIGN(const auto mlp, ReadFactors<2>(config, "mlp_multipliers"));
  spec.mlp_gate_multiplier = mlp[0];
  spec.mlp_multiplier = mlp[1];
  PINION_ASSIGN(const float in, factor("ssm_in_multiplier"));
  PINION_ASSIGN(const auto parts, ReadFactors<5>(config, "ssm_multipliers"));
  MambaMultipliers& mamba = spec.mamba.multipliers;
  mamba = {in * parts[0], in * parts[1], in * parts[2], in * parts[3], in * parts[4], 1};
  PINION_ASSIGN(mamba.out, factor("ssm_out_multiplier"));
  return {};
}

// The gated norm is left out by default; the one that comes before the gate is not computed.
Status ReadFalconNorm(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool norms, Optional<bool>(config, "mamba_rms_norm", false));
  PINION_ASSIGN(const bool before, Optional<bool>(config, "mamba_norm_before_gate", true));
  if (norms && before)
    return Fail(
        ErrorCode::kUnsupported,
        "'mamba_norm_before_gate' is true, which changes the model in a way Pinion does not "
        "compute; it runs only false, or models without 'mamba_rms_norm'");
  if (!norms) spec.mamba.norm_runs = 0;
  return {};
}

// The inner width is stated; heads that are not, or are "auto", divide it.
Result<Json> WithMambaHeads(Json config) {
  const Json* inner = config.Find("mamba_d_ssm");
  const Json* head = config.Find("mamba_d_head");
  const bool is_stated = head && !head->is_null() && *head != Json("auto");
  if (is_stated || !inner || inner->is_null()) return config;
  PINION_ASSIGN(const int width, RequireIn(config, "mamba_d_ssm", 1, kMaxIntermediate));
  PINION_ASSIGN(const int heads, RequireIn(config, "mamba_n_heads", 1, kMaxHeads));
  config.Set("mamba_d_head", width / heads);
  return config;
}

Status ReadFalconH1(const Json& whole, DecoderSpec& spec) {
  PINION_ASSIGN(const Json given, WithMambaHeads(whole));
  PINION_TRY(ReadLlamaShape(given, spec));
  PINION_TRY(ReadMamba(given, {}, "model.layers.{}.mamba.", spec));
  PINION_ASSIGN(const int inner,
                OptionalIn(given, "mamba_d_ssm", 1, kMaxIntermediate, spec.mamba.inner()));
  if (inner != spec.mamba.inner())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'mamba_d_ssm' is ", inner, ", want ", spec.mamba.inner(), ", which ",
                       spec.mamba.heads, " heads of ", spec.mamba.head_dim, " are wide"));
  PINION_TRY(ReadFalconNorm(given, spec));
  PINION_TRY(ReadFalconMultipliers(given, spec));
  for (LayerSpec& layer : spec.layer_specs) layer.mixer = MixerKind::kAttentionAndMamba;
  const std::string layer = "model.layers.{}.", mlp = layer + "feed_forward.";
  spec.names.mlp_norm = layer + "pre_ff_layernorm";
  spec.names.gate = mlp + "gate_proj";
  spec.names.up = mlp + "up_proj";
  spec.names.down = mlp + "down_proj";
  spec.names.final_norm = "model.final_layernorm";
  return {};
}

constexpr NeutralField kFalconNeutral[] = {
    {"hidden_act", "silu|swish"}, {"attention_bias", "false"}, {"attn_layer_indices", ""},
    {"mamba_proj_bias", "false"}, {"mamba_use_mlp", "true"},   {"mlp_bias", "false"},
    {"projectors_bias", "false"}, {"sliding_window", ""}};
constexpr std::string_view kFalconReads[] = {"embedding_multiplier", "lm_head_multiplier"};
constexpr const char* kFalconDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_n_heads": 128,
        "mamba_d_state": 256, "max_position_embeddings": 8192})";

}  // namespace

extern const Architecture kFalconH1;
const Architecture kFalconH1 = {"FalconH1ForCausalLM", "falcon_h1",  "Falcon-H1",    kFalconNeutral,
                                ReadFalconH1,          kFalconReads, kFalconDefaults};

}  // namespace pinion
