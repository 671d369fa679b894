// Cohere 2 (Command R7B, Command A): attention and MLP side by side behind one LayerNorm without
// bias; layers with a window rotate neighbouring pairs, the others nothing; scaled logits.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

Status ReadCohere2(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  spec.norm = NormKind::kLayer;
  PINION_ASSIGN(const double eps, Optional<double>(config, "layer_norm_eps", 1e-5));
  spec.norm_eps = static_cast<float>(eps);
  spec.parts_side_by_side = true;
  spec.names.mlp_norm = "";
  PINION_ASSIGN(spec.logit_multiplier, OptionalPositive(config, "logit_scale", 0.0625f));
  PINION_ASSIGN(const int every, OptionalIn(config, "sliding_window_pattern", 1, kMaxLayers, 4));
  PINION_TRY(ReadWindows(config, spec, [every](int layer) { return (layer + 1) % every != 0; }));
  spec.ropes[0].interleaved = true;
  for (LayerSpec& layer : spec.layer_specs) layer.rope = layer.window > 0 ? 0 : -1;
  return {};
}

constexpr NeutralField kCohere2Neutral[] = {{"position_embedding_type", "rope_gptj"},
                                            {"order_of_interleaved_layers", "local_attn_first"},
                                            {"use_parallel_block", "true"},
                                            {"use_gated_activation", "true"},
                                            {"mlp_bias", "false"}};
constexpr std::string_view kCohere2Reads[] = {"layer_types", "logit_scale",
                                              "sliding_window_pattern", "position_embedding_type"};

}  // namespace

extern const Architecture kCohere2;
const Architecture kCohere2 = {
    "Cohere2ForCausalLM",
    "cohere2",
    "Command R7B, Command A",
    kCohere2Neutral,
    ReadCohere2,
    kCohere2Reads,
    R"({"max_position_embeddings": 8192, "sliding_window": 4096, "tie_word_embeddings": true})"};

}  // namespace pinion
