#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/spec/format_plan.h"
#include "engine/spec/mamba_spec.h"
#include "engine/spec/rope.h"
#include "engine/spec/routing.h"
#include "kernels/kernels.h"

namespace pinion {

enum class NormKind { kRms, kLayer };
// What mixes the tokens of a sequence: attention over all that the cache holds of it, the gated
// delta rule over a state of fixed size, a convolution over its last tokens, or Mamba-2.
enum class MixerKind { kAttention, kDeltaNet, kShortConv, kMamba };
enum class MlpKind { kDense, kExperts };
// Norms of queries and keys: of each head by itself, or of the whole projection (across all ranks).
enum class QkNorm { kNone, kPerHead, kWhole };

// Names of a decoder's tensors; "{}" stands for the layer. Empty: the model has no such tensor and
// skips the operation. Each linear's weight is NAME.weight [outputs][inputs], its bias NAME.bias if
// the spec says that it has one.
struct TensorNames {
  std::string embedding;           // whole name, [vocabulary][hidden]
  std::string position_embedding;  // whole name, [max_positions + offset][hidden]
  // Norms of the inputs of attention (or what stands in its place) and MLP, and of what they add to
  // the residual stream.
  std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
  std::string q_norm, k_norm;  // [head_dim] or, over the whole projection, [heads * head_dim]
  std::string q, k, v;
  std::string layer_scale;  // whole name, [1]: the residual stream is times it after the layer
  std::string sinks;        // whole name, [heads]: a logit that takes part in a head's softmax
  std::string qkv;          // instead of q, k, v: their rows in one tensor, in this order
  std::string o, gate, up, down;  // up, down: fc1, fc2 if there is no gate
  std::string gate_up;            // instead of gate, up: their rows in one tensor, in this order
  // Mixture of experts. The router is a linear; its correction is a whole name, [experts]. Experts
  // are linears with a second "{}" for the expert, or whole names of tensors of all experts, laid
  // out as ExpertTensors says, with biases NAME_bias.
  std::string router, router_correction;
  std::string expert_gate, expert_up, expert_down;
  std::string experts_gate_up, experts_down;
  std::string shared_gate, shared_up, shared_down;  // for every token, beside them
  std::string shared_gate_up;  // instead of shared_gate, shared_up: their rows in this order
  std::string shared_router;   // linear with one output: the shared one is times its sigmoid
  // Latent attention. Queries through q_a, its norm and q_b, or through q alone.
  std::string q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;
  // Gated DeltaNet. Linears: queries, keys and values of all heads, then z, b and a; or qkvz and
  // ba, whose rows are by key head: its query, its key, its value heads' values, their z; their b,
  // a.
  std::string delta_qkv, delta_z, delta_b, delta_a;
  std::string delta_qkvz, delta_ba;
  std::string delta_conv;                  // linear [channels of q, k, v][1][conv_width]
  std::string delta_decay, delta_dt_bias;  // whole names, [value_heads]: log A, and what a lacks
  std::string delta_norm, delta_o;         // the norm of a value head, [value_dim]; a linear
  // Gated short convolution: linears, the first with the rows of B, C and x; [hidden][1][width].
  std::string conv_in, conv, conv_o;
  // Mamba-2: linears, the first with the rows of z, x, B, C and dt; a convolution with a kernel
  // [channels of x, B, C][1][conv_width]; whole names, [heads]: log A, D, what dt lacks; the norm,
  // [inner].
  std::string mamba_in, mamba_conv, mamba_decay, mamba_skip, mamba_dt_bias, mamba_norm, mamba_o;
  std::string final_norm;
  std::string head;  // whole name; unused if the head is tied to the embedding
  // Other spellings of prefixes in published checkpoints: {"model.", ""} means that
  // "model.norm.weight" may be stored as "norm.weight". Only OpenWeights applies them.
  std::vector<std::pair<std::string, std::string>> prefix_aliases;
};

// Properties that may differ from layer to layer.
struct LayerSpec {
  int window = 0;  // a token sees itself and window - 1 before it; 0: everything before it
  int rope = 0;    // index into DecoderSpec::ropes; -1: queries and keys are not rotated
  MixerKind mixer = MixerKind::kAttention;
  MlpKind mlp = MlpKind::kDense;
  int kv_heads = 0, head_dim = 0;  // of attention; 0: the decoder's
  bool keys_as_values = false;     // there is no v: values are k's output before its norm and rope
  bool scales_queries = false;     // by DecoderSpec::query_scale
};

// Queries times 1 + weight * log(1 + floor((position + ahead) / length)): sharpens attention over
// sequences that are longer than those in training.
struct QueryScale {
  double weight = 0, length = 1;
  int ahead = 0;

  float At(size_t position) const;
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434). Per token the cache holds one latent
// of kv_rank elements and one rotary key of rope_dim: kv_heads is 1 and head_dim their sum.
struct LatentSpec {
  int kv_rank = 0;                                // 0: the attention is an ordinary one
  int q_rank = 0;                                 // of compressed queries; 0: uncompressed
  int nope_dim = 0, rope_dim = 0, value_dim = 0;  // of one head's query, both parts, and value
};

// Gated DeltaNet (arXiv:2412.06464) as in Qwen3-Next. Queries, keys and values pass a causal
// convolution per channel and silu; queries and keys are normalised to length 1. Each value head
// has a state [key_dim][value_dim], to which the delta rule applies token by token (DeltaRuleArgs
// in kernels/kernels.h) with decay exp(-A softplus(a + dt_bias)) and beta = sigmoid(b). Its output
// is normalised, times silu(z). Value head h takes the query and key of h * key_heads /
// value_heads.
struct DeltaSpec {
  int key_heads = 0, value_heads = 0;  // 0: no layer is of this kind
  int key_dim = 0, value_dim = 0;      // of a head
  int conv_width = 0;                  // tokens that the convolution sees, the current one included

  int heads_per_key() const { return value_heads / key_heads; }
};

// Gated short convolution (LFM2). A linear gives B, C and x, as wide as the residual stream each;
// the mixer's output is C * conv(B * x), where conv is causal and of each channel by itself.
struct ShortConvSpec {
  int width = 0;  // tokens that it sees, the current one included; 0: no layer is of this kind
};

// What the forward pass has room for; published models have 4 and 128.
inline constexpr int kMaxConvWidth = 16, kMaxStateDim = 512;

// How a checkpoint stores experts: a linear each, or all in one tensor, [experts][inputs][outputs]
// with gate and up outputs alternating, or [experts][outputs][inputs] with up's outputs after
// gate's.
enum class ExpertTensors { kEach, kAlternating, kConsecutive };

// Mixture of experts, each of them a gated MLP; a token's output is the weighted sum of those it
// chose, plus the shared one.
struct MoeSpec {
  RouterSpec router;
  int intermediate = 0;         // of one expert
  int shared_intermediate = 0;  // of the MLP that every token takes too; 0: none
  bool shared_router = false;   // it is times the sigmoid of a linear of its own
  ExpertTensors tensors = ExpertTensors::kEach;
  bool bias = false;  // of the experts' linears
  // GPT-OSS: the kernels' clamped_swiglu instead of the activation; 0: not used
  float swiglu_limit = 0, swiglu_alpha = 1;
};

// A decoder as plain data. An architecture file maps config.json to it; the decoder's loop reads it
// and has no branch by architecture name.
//
// A layer computes, with "attention" for whatever its mixer is, x the residual stream and absent
// norms the identity:
//   x += residual_multiplier * attention_post_norm(attention(attention_norm(x)))
//   x += residual_multiplier * mlp_post_norm(mlp(mlp_norm(x)))
//   x *= layer_scale
// or, if the parts stand side by side, both from attention_norm of the layer's input.
struct DecoderSpec {
  std::string architecture;  // "LlamaForCausalLM"
  // The multimodal model whose language model this is ("Gemma3ForConditionalGeneration"); empty if
  // the checkpoint is a language model alone.
  std::string wrapper;
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int vocabulary = 0;
  int max_positions = 0;               // the model's longest sequence
  std::vector<LayerSpec> layer_specs;  // [layers]
  std::vector<RopeSpec> ropes;         // of the layers, by index; none: no rotary embedding

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  float norm_offset = 0;  // added to every norm's weight: Gemma stores w - 1
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_after_rope = false;  // kPerHead only
  bool value_norm = false;          // RMS norm of each value head, without weights
  bool parts_side_by_side = false;  // attention and MLP; there is no mlp_norm then

  // gated: down(activation(gate(x)) * up(x)); else down(activation(up(x)))
  kernels::Activation activation = kernels::Activation::kSilu;
  bool gated = true;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, norm_bias = false;
  bool tied_head = false;
  // q has two parts for each head, query and gate; the head's output is times sigmoid(gate).
  bool attention_gate = false;

  LatentSpec latent;
  DeltaSpec delta;     // of the layers whose mixer is kDeltaNet
  ShortConvSpec conv;  // of the layers whose mixer is kShortConv
  MambaSpec mamba;     // of the layers whose mixer is kMamba
  MoeSpec moe;         // of the layers whose MLP is kExperts

  float attention_scale = 1;     // multiplies q.k; by default 1 / sqrt(head_dim)
  float attention_soft_cap = 0;  // products become cap * tanh(product / cap); 0: no cap
  float embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1;
  QueryScale query_scale;        // of the layers whose scales_queries is set
  float logit_soft_cap = 0;      // then logits become cap * tanh(logit / cap); 0: no cap
  int position_offset = 0;       // OPT: learned positions begin at row 2
  std::string checkpoint_dtype;  // "bfloat16", ...: --dtype auto uses it
  std::vector<int32_t> eos_ids;  // config.json's, then also generation_config.json's
  std::optional<int32_t> bos_id;
  TensorNames names;
  FormatPlan formats;  // matrices that stay in integers; set by PlanFormats, not from config
};

// Reads config.json in the layout of transformers 4 or 5. Unknown architectures, and fields with
// values that would change the mathematics, are errors that name them.
Result<DecoderSpec> ReadSpec(const Json& config);

// Adds the eos_token_id (an id or a list) of config.json or generation_config.json to spec.eos_ids.
Status JoinEosIds(const Json& config, DecoderSpec& spec);

uint64_t ParameterCount(const DecoderSpec& spec);

}  // namespace pinion
