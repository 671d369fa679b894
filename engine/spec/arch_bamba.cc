// Bamba: Mamba-2 in most layers, attention with half of each head rotated in the others.

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadBambaMixers(const Json& config, DecoderSpec& spec) {
  const Json* attending = config.Find("attn_layer_indices");
  if (attending && !attending->is_null() && !attending->is_array())
    return Fail(ErrorCode::kCorrupt, StrCat("'attn_layer_indices' is ", attending->type_name(),
                                            ", want a list of layers"));
  const Json::Array list = attending && attending->is_array() ? attending->array() : Json::Array{};
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const bool attends = std::any_of(list.begin(), list.end(), [&](const Json& layer) {
      return layer.is_int() && layer.integer() == static_cast<int64_t>(i);
    });
    if (!attends) spec.layer_specs[i].mixer = MixerKind::kMamba;
  }
  return {};
}

Status ReadBamba(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadMamba(config, {}, "model.layers.{}.mamba.", spec));
  const std::string layer = "model.layers.{}.", mlp = layer + "feed_forward.";
  spec.names.mlp_norm = layer + "pre_ff_layernorm";
  spec.names.gate = mlp + "gate_proj";
  spec.names.up = mlp + "up_proj";
  spec.names.down = mlp + "down_proj";
  spec.names.final_norm = "model.final_layernorm";
  return ReadBambaMixers(config, spec);
}

constexpr NeutralField kBambaNeutral[] = {{"attention_bias", "false"},
                                          {"hidden_act", "silu|swish"},
                                          {"mamba_proj_bias", "false"},
                                          {"mlp_bias", "false"},
                                          {"sliding_window", ""}};
constexpr const char* kBambaDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
        "mamba_n_heads": 128, "mamba_d_state": 256})";

}  // namespace

extern const Architecture kBamba;
const Architecture kBamba = {"BambaForCausalLM", "bamba", "Bamba",       kBambaNeutral,
                             ReadBamba,          {},      kBambaDefaults};

}  // namespace pinion
