// Granite 4: Granite's multipliers around Mamba-2 in most layers and attention, mostly without
// rope, in the others. Every layer has an MLP for all tokens and, in mixtures, experts beside it.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadGraniteMixers(const Json& config, DecoderSpec& spec) {
  const Json* types = config.Find("layer_types");
  if (!types || types->is_null()) types = config.Find("layers_block_type");
  if (!types || !types->is_array() || types->array().size() != spec.layer_specs.size())
    return Fail(ErrorCode::kCorrupt, StrCat("'layer_types' must be a list of one type for each of ",
                                            spec.layers, " layers"));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const Json& type = types->array()[i];
    const std::string name = OlderLayerType(type);
    if (name != "mamba" && name != "attention")
      return Fail(ErrorCode::kUnsupported, StrCat("'layer_types' holds ", type.Dump().substr(0, 60),
                                                  ", want mamba or attention"));
    if (name == "mamba") spec.layer_specs[i].mixer = MixerKind::kMamba;
  }
  return {};
}

Status ReadGranitePositions(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const std::string type,
                Optional<std::string>(config, "position_embedding_type", "nope"));
  if (type == "rope") return {};
  if (type != "nope")
    return Fail(ErrorCode::kUnsupported, StrCat("'position_embedding_type' is '",
                                                type.substr(0, 60), "', want rope or nope"));
  spec.ropes.clear();
  for (LayerSpec& layer : spec.layer_specs) layer.rope = -1;
  return {};
}

Status ReadGraniteMultipliers(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.embedding_multiplier, OptionalPositive(config, "embedding_multiplier", 1));
  PINION_ASSIGN(spec.attention_scale, OptionalPositive(config, "attention_multiplier", 1));
  PINION_ASSIGN(spec.residual_multiplier, OptionalPositive(config, "residual_multiplier", 1));
  PINION_ASSIGN(const float scaling, OptionalPositive(config, "logits_scaling", 1));
  spec.logit_multiplier = 1 / scaling;
  return {};
}

Status ReadGraniteExperts(const Json& config, int experts, DecoderSpec& spec) {
  MoeSpec& moe = spec.moe;
  moe.router.experts = experts;
  PINION_ASSIGN(moe.router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  moe.router.score = RouterScore::kLogit;
  moe.tensors = ExpertTensors::kConsecutive;
  moe.intermediate = spec.intermediate;
  PINION_ASSIGN(moe.shared_intermediate,
                RequireIn(config, "shared_intermediate_size", 1, kMaxIntermediate));
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  const std::string experts_module = "model.layers.{}.block_sparse_moe.";
  const std::string shared = "model.layers.{}.shared_mlp.";
  TensorNames& names = spec.names;
  names.router = experts_module + "router.layer";
  names.experts_gate_up = experts_module + "input_linear.weight";
  names.experts_down = experts_module + "output_linear.weight";
  names.shared_gate_up = shared + "input_linear";
  names.shared_down = shared + "output_linear";
  return {};
}

Status ReadGraniteHybrid(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadMamba(config, {}, "model.layers.{}.mamba.", spec));
  PINION_TRY(ReadGraniteMultipliers(config, spec));
  PINION_TRY(ReadGraniteMixers(config, spec));
  PINION_TRY(ReadGranitePositions(config, spec));
  PINION_ASSIGN(const int experts, OptionalIn(config, "num_local_experts", 0, kMaxExperts, 8));
  TensorNames& names = spec.names;
  names.gate.clear(), names.up.clear(), names.down.clear();
  if (experts > 0) return ReadGraniteExperts(config, experts, spec);
  PINION_ASSIGN(spec.intermediate,
                RequireIn(config, "shared_intermediate_size", 1, kMaxIntermediate));
  names.gate_up = "model.layers.{}.shared_mlp.input_linear";
  names.down = "model.layers.{}.shared_mlp.output_linear";
  return {};
}

constexpr NeutralField kGraniteHybridNeutral[] = {{"attention_bias", "false"},
                                                  {"hidden_act", "silu|swish"},
                                                  {"mamba_proj_bias", "false"},
                                                  {"normalization_function", "rmsnorm"},
                                                  {"sliding_window", ""}};
constexpr std::string_view kGraniteHybridReads[] = {
    "attention_multiplier",   "embedding_multiplier", "layer_types",
    "logits_scaling",         "num_local_experts",    "residual_multiplier",
    "position_embedding_type"};
constexpr const char* kGraniteHybridDefaults =
    R"({"shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_d_state": 256,
        "num_experts_per_tok": 2})";

}  // namespace

extern const Architecture kGraniteHybrid;
const Architecture kGraniteHybrid = {
    "GraniteMoeHybridForCausalLM", "granitemoehybrid", "Granite 4",
    kGraniteHybridNeutral,         ReadGraniteHybrid,  kGraniteHybridReads,
    kGraniteHybridDefaults};

}  // namespace pinion
