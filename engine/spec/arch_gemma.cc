// Gemma 2 and 3: norms before and after each part, with weights stored minus one; a scaled
// embedding, a gelu gate, windows in some layers. Gemma 2 caps scores and logits; Gemma 3
// normalises each query and key head and gives its windowed layers a rope of their own.

#include <cmath>

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadGemma(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(spec.activation, ReadActivation(config, "hidden_activation"));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  spec.norm_offset = 1;
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden));
  PINION_ASSIGN(const float scalar, OptionalPositive(config, "query_pre_attn_scalar", 256));
  spec.attention_scale = 1 / std::sqrt(scalar);
  PINION_ASSIGN(spec.attention_soft_cap, OptionalPositive(config, "attn_logit_softcapping", 0));
  PINION_ASSIGN(spec.logit_soft_cap, OptionalPositive(config, "final_logit_softcapping", 0));
  const std::string layer = "model.layers.{}.";
  spec.names.attention_post_norm = layer + "post_attention_layernorm";
  spec.names.mlp_norm = layer + "pre_feedforward_layernorm";
  spec.names.mlp_post_norm = layer + "post_feedforward_layernorm";
  return {};
}

Status ReadGemma2(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadGemma(config, spec));
  return ReadWindows(config, spec, [](int layer) { return layer % 2 == 0; });
}

// transformers 4 has a separate base for the windowed layers.
Status ReadGemma3Ropes(const Json& config, DecoderSpec& spec) {
  // config.json already states the stretched length.
  PINION_ASSIGN(const int positions,
                RequireIn(config, "max_position_embeddings", 1, kMaxPositions));
  spec.max_positions = positions;
  PINION_ASSIGN(const double base, Optional<double>(config, "rope_local_base_freq", 10000.0));
  return AddWindowRope(config, Json::Object{{"rope_theta", base}}, spec);
}

Status ReadGemma3(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadGemma(WithFullRope(config), spec));
  spec.qk_norm = QkNorm::kPerHead;
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  PINION_ASSIGN(const int pattern, OptionalIn(config, "sliding_window_pattern", 1, kMaxLayers, 6));
  PINION_TRY(ReadWindows(config, spec, [pattern](int i) { return (i + 1) % pattern != 0; }));
  return ReadGemma3Ropes(config, spec);
}

// Without a head; EmbeddingGemma attends in both directions, half a window each way.
Status ReadGemma3Text(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.bidirectional, Optional<bool>(config, "use_bidirectional_attention", false));
  PINION_TRY(ReadGemma3(config, spec));
  DropHead(spec);
  if (spec.bidirectional)
    for (LayerSpec& layer : spec.layer_specs)
      if (layer.window > 0) layer.window = layer.window / 2 + 1;
  return {};
}

constexpr NeutralField kGemmaNeutral[] = {{"mlp_bias", "false"}};
constexpr std::string_view kGemmaReads[] = {"layer_types",
                                            "query_pre_attn_scalar",
                                            "attn_logit_softcapping",
                                            "final_logit_softcapping",
                                            "rope_local_base_freq",
                                            "sliding_window_pattern",
                                            "use_bidirectional_attention"};
// Generation is causal.
constexpr NeutralField kGemmaCausal[] = {{"mlp_bias", "false"},
                                         {"use_bidirectional_attention", "false"}};

constexpr std::string_view kGemma3Defaults =
    R"({"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "sliding_window": 4096, "query_pre_attn_scalar": 256,
        "rope_theta": 1000000.0, "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": true})";

}  // namespace

extern const Architecture kGemma2, kGemma3, kGemma3Encoder;
const Architecture kGemma2 = {
    "Gemma2ForCausalLM",
    "gemma2",
    "Gemma 2",
    kGemmaCausal,
    ReadGemma2,
    kGemmaReads,
    R"({"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
        "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": true})"};
const Architecture kGemma3 = {
    "Gemma3ForCausalLM", "gemma3_text", "Gemma 3",       kGemmaCausal,
    ReadGemma3,          kGemmaReads,   kGemma3Defaults, "Gemma3ForConditionalGeneration"};
const Architecture kGemma3Encoder = {
    "Gemma3TextModel", "",          "EmbeddingGemma", kGemmaNeutral,
    ReadGemma3Text,    kGemmaReads, kGemma3Defaults};

}  // namespace pinion
