// Qwen2 (and 2.5): Llama with biases on queries, keys and values. Qwen3 has a norm over each query
// and key head instead. Both may give their upper layers a window.

#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// Published configs set sliding_window and max_window_layers even if they do not use them.
Status ReadUpperWindows(Json config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool windows, Optional<bool>(config, "use_sliding_window", false));
  if (!windows) config.Set("sliding_window", nullptr);
  PINION_ASSIGN(const int first, OptionalIn(config, "max_window_layers", 0, 1 << 20, 28));
  return ReadWindows(config, spec, [first](int layer) { return layer >= first; });
}

Status ReadQwen2(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  spec.qkv_bias = true;
  return ReadUpperWindows(config, spec);
}

Status ReadQwen3(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = bias;
  spec.qk_norm = QkNorm::kPerHead;
  spec.names.q_norm = "model.layers.{}.self_attn.q_norm";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  return ReadUpperWindows(config, spec);
}

// As it is published for embeddings: without a head.
Status ReadQwen3Model(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadQwen3(config, spec));
  DropHead(spec);
  return {};
}

constexpr NeutralField kQwenNeutral[] = {{"use_mrope", "false"}, {"mlp_bias", "false"}};
constexpr std::string_view kQwenReads[] = {"layer_types"};
constexpr std::string_view kQwen3Defaults =
    R"({"head_dim": 128, "max_position_embeddings": 32768, "sliding_window": 4096})";

}  // namespace

extern const Architecture kQwen2, kQwen3, kQwen3Model;
const Architecture kQwen2 = {"Qwen2ForCausalLM",
                             "qwen2",
                             "Qwen2, Qwen2.5",
                             kQwenNeutral,
                             ReadQwen2,
                             kQwenReads,
                             R"({"max_position_embeddings": 32768, "sliding_window": 4096})"};
const Architecture kQwen3 = {"Qwen3ForCausalLM", "qwen3",    "Qwen3",       kQwenNeutral,
                             ReadQwen3,          kQwenReads, kQwen3Defaults};
const Architecture kQwen3Model = {"Qwen3Model",   "",         "Qwen3 Embedding", kQwenNeutral,
                                  ReadQwen3Model, kQwenReads, kQwen3Defaults};

}  // namespace pinion
