// GPT-OSS: windows in every other layer, attention sinks, biases everywhere, experts with a clamped
// SwiGLU. The weights of a token's experts are a softmax over the chosen ones only.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// As published, experts are stored in MXFP4, which engine/checkpoint shows as a linear for each;
// copies in bfloat16 have one tensor for all.
Result<bool> HasMxfp4(const Json& config) {
  const Json* scheme = config.Find("quantization_config");
  if (!scheme || !scheme->is_object()) return false;
  PINION_ASSIGN(const std::string method, Optional<std::string>(*scheme, "quant_method", ""));
  return method == "mxfp4";
}

constexpr std::string_view kGptOssRope =
    R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": false, "original_max_position_embeddings": 4096})";

Status ReadGptOss(const Json& given, DecoderSpec& spec) {
  const Json config = WithDefaultRope(given, kGptOssRope);
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadWindows(config, spec, [](int layer) { return layer % 2 == 0; }));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", true));
  spec.qkv_bias = spec.o_bias = bias;
  MoeSpec& moe = spec.moe;
  for (LayerSpec& layer : spec.layer_specs) layer.mlp = MlpKind::kExperts;
  moe.intermediate = spec.intermediate;
  moe.bias = moe.router.bias = true;
  moe.router.score = RouterScore::kLogit;
  PINION_ASSIGN(moe.router.experts, RequireIn(config, "num_local_experts", 1, kMaxExperts));
  PINION_ASSIGN(moe.router.top_k, RequireIn(config, "num_experts_per_tok", 1, kMaxExperts));
  PINION_ASSIGN(const double limit, Optional<double>(config, "swiglu_limit", 7.0));
  PINION_ASSIGN(const double alpha, Optional<double>(config, "swiglu_alpha", 1.702));
  if (!(limit > 0))
    return Fail(ErrorCode::kCorrupt, StrCat("'swiglu_limit' is ", limit, ", want above 0"));
  moe.swiglu_limit = static_cast<float>(limit);
  moe.swiglu_alpha = static_cast<float>(alpha);
  const std::string layer = "model.layers.{}.", mlp = layer + "mlp.";
  spec.names.sinks = layer + "self_attn.sinks";
  spec.names.router = mlp + "router";
  PINION_ASSIGN(const bool is_mxfp4, HasMxfp4(config));
  if (is_mxfp4) {
    spec.names.expert_gate = mlp + "experts.{}.gate_proj";
    spec.names.expert_up = mlp + "experts.{}.up_proj";
    spec.names.expert_down = mlp + "experts.{}.down_proj";
  } else {
    moe.tensors = ExpertTensors::kAlternating;
    spec.names.experts_gate_up = mlp + "experts.gate_up_proj";
    spec.names.experts_down = mlp + "experts.down_proj";
  }
  return {};
}

constexpr NeutralField kGptOssNeutral[] = {{"hidden_act", "silu"}};
constexpr std::string_view kGptOssReads[] = {"layer_types", "num_local_experts"};

}  // namespace

extern const Architecture kGptOss;
const Architecture kGptOss = {
    "GptOssForCausalLM",
    "gpt_oss",
    "GPT-OSS",
    kGptOssNeutral,
    ReadGptOss,
    kGptOssReads,
    R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-05, "rope_theta": 150000.0,
        "max_position_embeddings": 131072, "sliding_window": 128, "num_experts_per_tok": 4})"};

}  // namespace pinion
