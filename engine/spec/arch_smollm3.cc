// SmolLM3: Llama without rope in every fourth layer.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// no_rope_layers has a 1 for each layer with rope.
Status ReadRopeLayers(const Json& config, DecoderSpec& spec) {
  const Json* list = config.Find("no_rope_layers");
  if (!list || list->is_null()) {
    PINION_ASSIGN(const int every, OptionalIn(config, "no_rope_layer_interval", 1, kMaxLayers, 4));
    for (size_t i = 0; i < spec.layer_specs.size(); ++i)
      if ((i + 1) % static_cast<size_t>(every) == 0) spec.layer_specs[i].rope = -1;
    return {};
  }
  if (!list->is_array() || list->array().size() != spec.layer_specs.size())
    return Fail(
        ErrorCode::kCorrupt,
        StrCat("'no_rope_layers' must be a list of a 0 or 1 for each of ", spec.layers, " layers"));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const Json& rotates = list->array()[i];
    if (!rotates.is_int() || rotates.integer() < 0 || rotates.integer() > 1)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'no_rope_layers' holds ", rotates.Dump().substr(0, 60), ", want 0 or 1"));
    spec.layer_specs[i].rope = rotates.integer() == 1 ? 0 : -1;
  }
  return {};
}

Status ReadSmolLm3(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  return ReadRopeLayers(config, spec);
}

constexpr NeutralField kSmolLm3Neutral[] = {{"use_sliding_window", "false"}};
constexpr std::string_view kSmolLm3Reads[] = {"no_rope_layers"};

}  // namespace

extern const Architecture kSmolLm3;
const Architecture kSmolLm3 = {
    "SmolLM3ForCausalLM",
    "smollm3",
    "SmolLM3",
    kSmolLm3Neutral,
    ReadSmolLm3,
    kSmolLm3Reads,
    R"({"num_key_value_heads": 4, "max_position_embeddings": 32768, "rope_theta": 2000000.0,
        "tie_word_embeddings": true})"};

}  // namespace pinion
