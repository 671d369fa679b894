// EXAONE 4: norms after each part instead of before it, a norm of each query and key head, and
// layers with a window, which alone are rotated.

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// sliding_window_pattern: every how many layers one has no window, or a letter (L, G) for each of
// as many layers. Without a window it means nothing: transformers writes 0 then.
Status ReadExaoneWindows(const Json& config, DecoderSpec& spec) {
  const Json* window = config.Find("sliding_window");
  if (window && window->is_null()) return ReadWindows(config, spec, [](int) { return false; });
  const Json* pattern = config.Find("sliding_window_pattern");
  if (pattern && pattern->is_string()) {
    const std::string letters = pattern->string();
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      return Fail(ErrorCode::kCorrupt, StrCat("'sliding_window_pattern' is '",
                                              letters.substr(0, 60), "', want letters L and G"));
    return ReadWindows(config, spec, [&](int layer) {
      return letters[static_cast<size_t>(layer) % letters.size()] == 'L';
    });
  }
  PINION_ASSIGN(const int every, OptionalIn(config, "sliding_window_pattern", 1, kMaxLayers, 4));
  return ReadWindows(config, spec, [every](int layer) { return (layer + 1) % every != 0; });
}

Status ReadExaone4(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadExaoneWindows(config, spec));
  const Json* window = config.Find("sliding_window");
  if (window && !window->is_null())
    for (LayerSpec& layer : spec.layer_specs) layer.rope = layer.window > 0 ? 0 : -1;
  spec.qk_norm = QkNorm::kPerHead;
  const std::string layer = "model.layers.{}.";
  spec.names.attention_norm = spec.names.mlp_norm = "";
  spec.names.attention_post_norm = layer + "post_attention_layernorm";
  spec.names.mlp_post_norm = layer + "post_feedforward_layernorm";
  spec.names.q_norm = layer + "self_attn.q_norm";
  spec.names.k_norm = layer + "self_attn.k_norm";
  return {};
}

constexpr NeutralField kExaone4Neutral[] = {{"attention_bias", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kExaone4Reads[] = {"layer_types", "sliding_window_pattern"};

}  // namespace

extern const Architecture kExaone4;
const Architecture kExaone4 = {
    "Exaone4ForCausalLM",
    "exaone4",
    "EXAONE 4",
    kExaone4Neutral,
    ReadExaone4,
    kExaone4Reads,
    R"({"rms_norm_eps": 1e-05, "sliding_window": 4096, "sliding_window_pattern": 4})"};

}  // namespace pinion
