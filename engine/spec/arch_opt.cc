// OPT: learned positions, LayerNorm before each part, plain ReLU MLP.

#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

TensorNames Names() {
  const std::string decoder = "model.decoder.", layer = "model.decoder.layers.{}.";
  TensorNames names;
  names.embedding = decoder + "embed_tokens.weight";
  names.position_embedding = decoder + "embed_positions.weight";
  names.attention_norm = layer + "self_attn_layer_norm";
  names.mlp_norm = layer + "final_layer_norm";
  names.q = layer + "self_attn.q_proj";
  names.k = layer + "self_attn.k_proj";
  names.v = layer + "self_attn.v_proj";
  names.o = layer + "self_attn.out_proj";
  names.up = layer + "fc1";
  names.down = layer + "fc2";
  names.final_norm = decoder + "final_layer_norm";
  names.head = "lm_head.weight";
  names.prefix_aliases = {{"model.decoder.", "decoder."}};  // as in Meta's own checkpoints
  return names;
}

Status ReadWidths(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.hidden, RequireIn(config, "hidden_size", 8, kMaxHidden));
  PINION_ASSIGN(spec.heads, RequireIn(config, "num_attention_heads", 1, kMaxHeads));
  spec.kv_heads = spec.heads;
  if (spec.hidden % spec.heads != 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'hidden_size' is ", spec.hidden,
                       ", want a multiple of 'num_attention_heads', ", spec.heads));
  spec.head_dim = spec.hidden / spec.heads;
  PINION_ASSIGN(const int projected, Optional<int>(config, "word_embed_proj_dim", spec.hidden));
  if (projected != spec.hidden)
    return Fail(ErrorCode::kUnsupported,
                StrCat("'word_embed_proj_dim' is ", projected,
                       ", which needs projections around the "
                       "decoder that Pinion does not have; it runs only 'hidden_size', ",
                       spec.hidden));
  PINION_ASSIGN(spec.intermediate, RequireIn(config, "ffn_dim", 1, kMaxIntermediate));
  return {};
}

Status ReadOpt(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.layers, RequireIn(config, "num_hidden_layers", 1, kMaxLayers));
  PINION_TRY(ReadWidths(config, spec));
  PINION_ASSIGN(spec.vocabulary, RequireIn(config, "vocab_size", 1, kMaxVocabulary));
  PINION_ASSIGN(spec.max_positions, RequireIn(config, "max_position_embeddings", 1, kMaxPositions));
  PINION_ASSIGN(const bool bias, Optional<bool>(config, "enable_bias", true));
  PINION_ASSIGN(spec.tied_head, Optional<bool>(config, "tie_word_embeddings", true));
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = bias;
  spec.norm = NormKind::kLayer;
  spec.norm_bias = true;
  spec.norm_eps = 1e-5f;  // torch.nn.LayerNorm's default: OPT's config does not state it
  spec.layer_specs.assign(static_cast<size_t>(spec.layers), {.rope = -1});
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  PINION_ASSIGN(spec.activation, ReadActivation(config, "activation_function"));
  spec.gated = false;
  spec.position_offset = 2;  // fairseq kept rows 0 and 1 for its padding token
  spec.names = Names();
  return {};
}

constexpr NeutralField kOptNeutral[] = {{"do_layer_norm_before", "true"},
                                        {"layer_norm_elementwise_affine", "true"},
                                        {"_remove_final_layer_norm", "false"}};

}  // namespace

extern const Architecture kOpt;
const Architecture kOpt = {
    "OPTForCausalLM", "opt", "OPT", kOptNeutral, ReadOpt, {}, R"({"activation_function": "relu"})"};

}  // namespace pinion
