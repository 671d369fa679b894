// Nemotron-H and Nemotron 3: every layer is one part alone, Mamba-2, attention without rope, an MLP
// or a mixture of experts; MLPs are relu squared without a gate.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// A layer's part: its letter in 'hybrid_override_pattern', its name in 'layers_block_type'.
struct NemotronPart {
  char letter;
  std::string_view name;
  MixerKind mixer;
  MlpKind mlp;
};
constexpr NemotronPart kNemotronParts[] = {
    {'M', "mamba", MixerKind::kMamba, MlpKind::kNone},
    {'*', "attention", MixerKind::kAttention, MlpKind::kNone},
    {'-', "mlp", MixerKind::kNone, MlpKind::kDense},
    {'E', "moe", MixerKind::kNone, MlpKind::kExperts}};

using NemotronParts = std::vector<const NemotronPart*>;

Result<NemotronParts> ReadPattern(const std::string& pattern) {
  NemotronParts parts;
  for (const char letter : pattern) {
    const NemotronPart* found = nullptr;
    for (const NemotronPart& part : kNemotronParts)
      if (part.letter == letter) found = &part;
    if (!found)
      return Fail(ErrorCode::kUnsupported, StrCat("'hybrid_override_pattern' holds '",
                                                  std::string(1, letter), "', want M, *, - or E"));
    parts.push_back(found);
  }
  return parts;
}

Result<NemotronParts> ReadBlockTypes(const Json& types) {
  NemotronParts parts;
  if (!types.is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'layers_block_type' is ", types.type_name(), ", want a list"));
  for (const Json& type : types.array()) {
    const NemotronPart* found = nullptr;
    for (const NemotronPart& part : kNemotronParts)
      if (OlderLayerType(type) == part.name) found = &part;
    if (!found)
      return Fail(ErrorCode::kUnsupported,
                  StrCat("'layers_block_type' holds ", type.Dump().substr(0, 60),
                         ", want mamba, attention, mlp or moe"));
    parts.push_back(found);
  }
  return parts;
}

Result<NemotronParts> ReadNemotronParts(const Json& config) {
  const Json* types = config.Find("layers_block_type");
  if (types && !types->is_null()) return ReadBlockTypes(*types);
  PINION_ASSIGN(const auto pattern, Require<std::string>(config, "hybrid_override_pattern"));
  return ReadPattern(pattern);
}

constexpr FieldAlias kNemotronRenamed[] = {{"layer_norm_epsilon", "rms_norm_eps"},
                                           {"mlp_hidden_act", "hidden_act"}};

// The config with the names that Llama's relatives have for the same things.
Result<Json> AsLlama(Json config, size_t layers) {
  PINION_ASSIGN(const int stated,
                OptionalIn(config, "num_hidden_layers", 1, kMaxLayers, static_cast<int>(layers)));
  if (static_cast<size_t>(stated) != layers)
    return Fail(ErrorCode::kCorrupt, StrCat("'num_hidden_layers' is ", stated, ", want ", layers,
                                            ", as many as the pattern of layers has"));
  config.Set("num_hidden_layers", stated);
  const auto rename = [&](std::string_view from, std::string_view to) {
    const Json* value = config.Find(from);
    if (value && !value->is_null()) config.Set(to, Json(*value));
  };
  for (const auto& [own, common] : kNemotronRenamed) rename(own, common);
  if (!config.Find("head_dim")) rename("attention_head_dim", "head_dim");
  if (!config.Find("head_dim")) config.Set("head_dim", 128);
  return config;
}

Status ReadNemotronExperts(const Json& config, DecoderSpec& spec) {
  MoeSpec& moe = spec.moe;
  RouterSpec& router = moe.router;
  PINION_ASSIGN(router.experts, RequireIn(config, "n_routed_experts", 1, kMaxExperts));
  PINION_ASSIGN(router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  PINION_ASSIGN(router.groups, OptionalIn(config, "n_group", 1, kMaxExperts, 1));
  PINION_ASSIGN(router.top_groups, OptionalIn(config, "topk_group", 1, kMaxExperts, 1));
  PINION_ASSIGN(router.normalise, Optional<bool>(config, "norm_topk_prob", true));
  PINION_ASSIGN(router.scale, OptionalPositive(config, "routed_scaling_factor", 1));
  router.score = RouterScore::kSigmoid;
  router.group_score = GroupScore::kTwoBest;
  router.correction = true;
  PINION_ASSIGN(moe.intermediate, RequireIn(config, "moe_intermediate_size", 1, kMaxIntermediate));
  PINION_ASSIGN(moe.shared_intermediate,
                RequireIn(config, "moe_shared_expert_intermediate_size", 1, kMaxIntermediate));
  const std::string mixer = "backbone.layers.{}.mixer.";
  TensorNames& names = spec.names;
  names.router = mixer + "gate";
  names.router_correction = mixer + "gate.e_score_correction_bias";
  names.expert_up = mixer + "experts.{}.up_proj";
  names.expert_down = mixer + "experts.{}.down_proj";
  names.shared_up = mixer + "shared_experts.up_proj";
  names.shared_down = mixer + "shared_experts.down_proj";
  return {};
}

TensorNames NemotronNames() {
  const std::string layer = "backbone.layers.{}.", mixer = layer + "mixer.";
  TensorNames names;
  names.embedding = "backbone.embeddings.weight";
  names.attention_norm = names.mlp_norm = layer + "norm";
  names.q = mixer + "q_proj";
  names.k = mixer + "k_proj";
  names.v = mixer + "v_proj";
  names.o = mixer + "o_proj";
  names.up = mixer + "up_proj";
  names.down = mixer + "down_proj";
  names.final_norm = "backbone.norm_f";
  names.head = "lm_head.weight";
  return names;
}

Status ReadNemotronH(const Json& given, DecoderSpec& spec) {
  PINION_ASSIGN(const NemotronParts parts, ReadNemotronParts(given));
  PINION_ASSIGN(const Json config, AsLlama(given, parts.size()));
  PINION_TRY(ReadLlamaShape(config, spec));
  spec.names = NemotronNames();
  spec.gated = false;
  spec.tied_head = false;  // whatever the config says, as in transformers
  spec.ropes.clear();
  bool has_experts = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    spec.layer_specs[i] = {.rope = -1, .mixer = parts[i]->mixer, .mlp = parts[i]->mlp};
    has_experts = has_experts || parts[i]->mlp == MlpKind::kExperts;
  }
  if (has_experts) PINION_TRY(ReadNemotronExperts(config, spec));
  constexpr MambaKeys kKeys = {"mamba_num_heads", "mamba_head_dim", "ssm_state_size",
                               "n_groups",        "conv_kernel",    "use_conv_bias"};
  return ReadMamba(config, kKeys, "backbone.layers.{}.mixer.", spec);
}

constexpr NeutralField kNemotronNeutral[] = {
    {"attention_bias", "false"}, {"mamba_hidden_act", "silu"}, {"mamba_proj_bias", "false"},
    {"mlp_bias", "false"},       {"moe_latent_size", ""},      {"sliding_window", ""},
    {"use_bias", "false"}};
constexpr std::string_view kNemotronReads[] = {"n_routed_experts"};
constexpr const char* kNemotronDefaults =
    R"({"mlp_hidden_act": "relu2", "layer_norm_epsilon": 1e-5, "num_key_value_heads": 8,
        "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8})";

}  // namespace

extern const Architecture kNemotronH;
const Architecture kNemotronH = {
    "NemotronHForCausalLM", "nemotron_h",   "Nemotron-H, Nemotron 3", kNemotronNeutral,
    ReadNemotronH,          kNemotronReads, kNemotronDefaults,        {},
    kNemotronRenamed};

}  // namespace pinion
