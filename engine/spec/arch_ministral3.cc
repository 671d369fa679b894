// Ministral 3: Mistral without a window, whose queries grow with their position beyond the length
// in training.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadQueryScale(const Json& parameters, DecoderSpec& spec) {
  const Json* weight = parameters.Find("llama_4_scaling_beta");
  if (!weight || weight->is_null()) return {};
  PINION_ASSIGN(const float beta, OptionalPositive(parameters, "llama_4_scaling_beta", 1));
  PINION_ASSIGN(const int length,
                RequireIn(parameters, "original_max_position_embeddings", 1, kMaxPositions));
  spec.query_scale = {beta, static_cast<double>(length), 0};
  for (LayerSpec& layer : spec.layer_specs) layer.scales_queries = true;
  return {};
}

constexpr std::string_view kMinistral3Rope =
    R"({"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
        "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})";

Status ReadMinistral3(const Json& given, DecoderSpec& spec) {
  const Json config = WithDefaultRope(given, kMinistral3Rope);
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadWindows(config, spec, [](int) { return true; }));
  spec.ropes[0].product_scale = 1;  // mscale_all_dim is the rotation's alone here
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* parameters = config.Find(key); parameters && parameters->is_object())
      return ReadQueryScale(*parameters, spec);
  return {};
}

constexpr NeutralField kMinistral3Neutral[] = {{"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kMinistral3Reads[] = {"layer_types"};

}  // namespace

extern const Architecture kMinistral3;
const Architecture kMinistral3 = {
    "Ministral3ForCausalLM",
    "ministral3",
    "Ministral 3",
    kMinistral3Neutral,
    ReadMinistral3,
    kMinistral3Reads,
    R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 262144})",
    "Mistral3ForConditionalGeneration"};

}  // namespace pinion
