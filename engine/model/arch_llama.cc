// Llama (2, 3, 3.1, 3.2, ...) and Qwen2 (and 2.5): the same decoder but for the biases.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/model/architecture.h"

namespace pinion {
namespace {

const char* const kAttention = "model.layers.{}.self_attn.";
const char* const kMlp = "model.layers.{}.mlp.";

TensorNames Names() {
  TensorNames names;
  names.embedding = "model.embed_tokens.weight";
  names.attention_norm = "model.layers.{}.input_layernorm";
  names.mlp_norm = "model.layers.{}.post_attention_layernorm";
  names.q = StrCat(kAttention, "q_proj");
  names.k = StrCat(kAttention, "k_proj");
  names.v = StrCat(kAttention, "v_proj");
  names.o = StrCat(kAttention, "o_proj");
  names.gate = StrCat(kMlp, "gate_proj");
  names.up = StrCat(kMlp, "up_proj");
  names.down = StrCat(kMlp, "down_proj");
  names.final_norm = "model.norm";
  names.head = "lm_head.weight";
  names.prefix_aliases = {{"model.", ""}};  // saved from the model without its head
  return names;
}

Result<int> HeadDim(const Json& config, const DecoderSpec& spec) {
  const Json* given = config.Find("head_dim");
  if (given && !given->is_null()) return RequireIn(config, "head_dim", 8, kMaxHeadDim);
  if (spec.hidden % spec.heads != 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'hidden_size' is ", spec.hidden, " and 'num_attention_heads' is ",
                       spec.heads, ", want a multiple of it or a 'head_dim'"));
  return spec.hidden / spec.heads;
}

}  // namespace
Status ReadLlamaShape(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.layers, RequireIn(config, "num_hidden_layers", 1, kMaxLayers));
  PINION_ASSIGN(spec.hidden, RequireIn(config, "hidden_size", 8, kMaxHidden));
  PINION_ASSIGN(spec.heads, RequireIn(config, "num_attention_heads", 1, kMaxHeads));
  PINION_ASSIGN(spec.kv_heads, OptionalIn(config, "num_key_value_heads", 1, kMaxHeads, spec.heads));
  PINION_ASSIGN(spec.head_dim, HeadDim(config, spec));
  PINION_ASSIGN(spec.intermediate, RequireIn(config, "intermediate_size", 1, kMaxIntermediate));
  PINION_ASSIGN(spec.vocabulary, RequireIn(config, "vocab_size", 1, kMaxVocabulary));
  PINION_ASSIGN(spec.max_positions,
                OptionalIn(config, "max_position_embeddings", 1, kMaxPositions, 2048));
  PINION_ASSIGN(const double eps, Optional<double>(config, "rms_norm_eps", 1e-6));
  spec.norm_eps = static_cast<float>(eps);
  PINION_ASSIGN(spec.tied_head, Optional<bool>(config, "tie_word_embeddings", false));
  spec.layer_specs.assign(static_cast<size_t>(spec.layers), {});
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  spec.names = Names();
  return ReadRope(config, spec);
}

namespace {
Status ReadLlama(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_ASSIGN(const bool attention_bias, Optional<bool>(config, "attention_bias", false));
  spec.qkv_bias = spec.o_bias = attention_bias;
  PINION_ASSIGN(spec.mlp_bias, Optional<bool>(config, "mlp_bias", false));
  return {};
}

// sliding_window and max_window_layers are set in configs that do not use them.
Status ReadQwen2(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  spec.qkv_bias = true;
  return {};
}

constexpr NeutralField kLlamaNeutral[] = {{"hidden_act", "silu"}, {"sliding_window", ""}};
constexpr NeutralField kQwen2Neutral[] = {
    {"hidden_act", "silu"}, {"use_sliding_window", "false"}, {"use_mrope", "false"}};

}  // namespace

extern const Architecture kLlama, kQwen2;
const Architecture kLlama = {"LlamaForCausalLM", "llama", kLlamaNeutral, ReadLlama};
const Architecture kQwen2 = {"Qwen2ForCausalLM", "qwen2", kQwen2Neutral, ReadQwen2};

}  // namespace pinion
