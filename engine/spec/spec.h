#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/spec/layer_input_spec.h"
#include "engine/spec/mamba_spec.h"
#include "engine/spec/rope.h"
#include "engine/spec/routing.h"
#include "kernels/kernels.h"

namespace pinion {

enum class NormKind { kRms, kLayer };
// The mixer of a sequence's tokens: attention over all that the cache holds of it, the gated delta
// rule over a state of fixed size, a convolution over its last tokens, or Mamba-2; attention and
// Mamba-2 side by side, their results added up; nothing, in a layer that is an MLP alone.
enum class MixerKind { kAttention, kDeltaNet, kShortConv, kMamba, kAttentionAndMamba, kNone };
constexpr bool Attends(MixerKind mixer) {
  return mixer == MixerKind::kAttention || mixer == MixerKind::kAttentionAndMamba;
}
constexpr bool HasMamba(MixerKind mixer) {
  return mixer == MixerKind::kMamba || mixer == MixerKind::kAttentionAndMamba;
}
// Whether it keeps a state for each sequence.
constexpr bool Recurs(MixerKind mixer) {
  return mixer != MixerKind::kAttention && mixer != MixerKind::kNone;
}
// kNone: in a layer that is a mixer alone.
enum class MlpKind { kDense, kExperts, kNone };
// Norms of queries and keys: of each head by itself, or of the whole projection (across all ranks).
enum class QkNorm { kNone, kPerHead, kWhole };

// Names of a decoder's tensors; "{}" stands for the layer. Empty: the model has no such tensor and
// skips the operation. Each linear's weight is NAME.weight [outputs][inputs], its bias NAME.bias if
// the spec says that it has one.
struct TensorNames {
  std::string embedding;           // whole name, [vocabulary][hidden]
  std::string position_embedding;  // whole name, [max_positions + offset][hidden]
  std::string type_embedding;      // whole name, [token_types][hidden]
  std::string embedding_norm;      // of the sum of the embeddings
  // Norms of the inputs of attention (or another mixer) and MLP, and of the terms that they add to
  // the residual stream.
  std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
  // [head_dim] or, over the whole projection, [heads * head_dim]; empty: norms of heads without
  // weights
  std::string q_norm, k_norm;
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
  // Of a MoeSpec that stands apart: norms of the experts' input, of their output and of the shared
  // MLP's; whole names, [hidden] and [experts]: factors of the router's normed input, and of the
  // chosen weights.
  std::string expert_norm, expert_post_norm, shared_post_norm;
  std::string router_norm, router_expert_scale;
  // Latent attention. Queries through q_a, its norm and q_b, or through q alone.
  std::string q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b;
  // Its indexer: linears from the compressed queries, from the hidden state to a key, and to the
  // heads' weights; the key's norm, weight and bias [dim].
  std::string index_q, index_k, index_weights, index_k_norm;
  // Gated DeltaNet. Linears: queries, keys and values of all heads, then z, b and a; or qkvz and
  // ba, whose rows are by key head: its query, its key, its value heads' values, their z; their b,
  // a.
  std::string delta_qkv, delta_z, delta_b, delta_a;
  std::string delta_qkvz, delta_ba;
  // Instead of qkv, z and a: three linears; two one after the other each.
  std::string delta_q, delta_k, delta_v;
  std::string delta_z_down, delta_z_up, delta_a_down, delta_a_up;
  std::string delta_conv;  // linear [channels of q, k, v][1][conv_width]
  std::string delta_conv_q, delta_conv_k, delta_conv_v;  // instead: linears of their channels
  // Whole names: log A, [value_heads] ([1][1][value_heads][1] if decays are per channel), and what
  // a lacks, as long as a.
  std::string delta_decay, delta_dt_bias;
  std::string delta_norm, delta_o;  // the norm of a value head, [value_dim]; a linear
  // Gated short convolution: linears, the first with the rows of B, C and x; [hidden][1][width].
  std::string conv_in, conv, conv_o;
  // Mamba-2: linears, the first with the rows of z, x, B, C and dt; a convolution with a kernel
  // [channels of x, B, C][1][conv_width]; whole names, [heads]: log A, D, what dt lacks; the norm,
  // [inner].
  std::string mamba_in, mamba_conv, mamba_decay, mamba_skip, mamba_dt_bias, mamba_norm, mamba_o;
  // Of a LayerInputSpec. The table is a whole name, [vocabulary][layers * size]; linears
  // [layers * size][hidden], [size][hidden], [hidden][size]; norms, [size] and [hidden].
  std::string layer_input_table, layer_input_projection, layer_input_norm;
  std::string layer_input_gate, layer_input_out, layer_input_post_norm;
  // Of an AltUpSpec: linears [streams][hidden], [streams * streams][streams], [streams][streams];
  // a norm; a whole name, [hidden]; linears [hidden][hidden], whose "{}" stands for the stream less
  // one.
  std::string altup_router, altup_predict, altup_correct, altup_router_norm, altup_scale;
  std::string altup_in, altup_out;
  std::string laurel_left, laurel_right, laurel_norm;  // linears through laurel_rank, and a norm
  std::string final_norm;
  std::string head;  // whole name; unused if the head is tied to the embedding
  // Of a ClassifierSpec: linears and a norm, without a layer.
  std::string classifier_dense, classifier_norm, classifier_out;
  // Other spellings of prefixes in checkpoints, applied by OpenWeights alone: {"model.", ""} means
  // that "model.norm.weight" may be stored as "norm.weight"; "{}" is each layer with a dense MLP.
  std::vector<std::pair<std::string, std::string>> prefix_aliases;
};

// Properties that may differ from layer to layer.
struct LayerSpec {
  // A token sees itself and window - 1 before it, in a bidirectional model also window - 1 after
  // it; 0: everything.
  int window = 0;
  int chunk = 0;  // it sees nothing before the last multiple of chunk; 0: no such limit
  int rope = 0;   // index into DecoderSpec::ropes; -1: queries and keys are not rotated
  MixerKind mixer = MixerKind::kAttention;
  MlpKind mlp = MlpKind::kDense;
  int kv_heads = 0, head_dim = 0;  // of attention; 0: the decoder's
  int kv_from = -1;      // the earlier layer whose keys and values it sees; -1: it has its own
  int kv_table = 0;      // the block table by which its own are found (AssignKvTables)
  int intermediate = 0;  // of a dense MLP; 0: the decoder's
  // A dense MLP's gates become max(0, gate - mean - gate_cut * deviation), of all gates of a token,
  // before the activation; unset: they stay as they are.
  std::optional<float> gate_cut = {};
  bool keys_as_values = false;  // there is no v: values are k's output before its norm and rope
  bool scales_queries = false;  // by DecoderSpec::query_scale
  bool attention_norm = true;   // false: the norm of this layer's attention is the identity
  bool qk_norm = true;          // whether DecoderSpec::qk_norm holds here
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

// Sparse attention (DeepSeek-V3.2, arXiv:2512.02556): a token attends to the top_k tokens up to
// itself with the highest scores, or to all of them if they are fewer. A token's score for another
// is the sum over heads of weight * relu(query . key); every head has a query, from the compressed
// ones of latent attention; a token has one key, which is cached. Rotated are the first rope_dim of
// LatentSpec, by their halves.
struct IndexSpec {
  int heads = 0, dim = 0;  // 0: a token attends to everything that its layer lets it see
  int top_k = 0;
};

// Gated DeltaNet (arXiv:2412.06464) as in Qwen3-Next. Queries, keys and values pass a causal
// convolution per channel and silu; queries and keys are normalised to length 1. Each value head
// has a state [key_dim][value_dim], to which the delta rule applies token by token (DeltaRuleArgs
// in kernels/kernels.h) with decay exp(-A softplus(a + dt_bias)) and beta = sigmoid(b). Its output
// is normalised, times silu(z). Value head h takes the query and key of h * key_heads /
// value_heads.
//
// Kimi Delta Attention (arXiv:2510.26692) is the same with a decay for each channel of the key (a
// and dt_bias have key_dim values for each head), z and a each through a bottleneck, and the
// sigmoid of z. There are as many value heads as key heads.
struct DeltaSpec {
  int key_heads = 0, value_heads = 0;  // 0: no layer is of this kind
  int key_dim = 0, value_dim = 0;      // of a head
  int conv_width = 0;                  // tokens that the convolution sees, the current one included
  bool decay_per_channel = false;
  int z_rank = 0, a_rank = 0;  // of the bottlenecks; 0: none. Both or neither
  kernels::Activation z_activation = kernels::Activation::kSilu;

  int heads_per_key() const { return value_heads / key_heads; }
};

// Gated short convolution (LFM2). A linear gives B, C and x, as wide as the residual stream each;
// the mixer's output is C * conv(B * x), where conv is causal and of each channel by itself.
struct ShortConvSpec {
  int width = 0;  // tokens that it sees, the current one included; 0: no layer is of this kind
};

// The limits of the forward pass; published models have 4 and 128.
inline constexpr int kMaxConvWidth = 16, kMaxStateDim = 512;

// How a checkpoint stores experts: a linear each, or all in one tensor, [experts][inputs][outputs]
// with gate and up outputs alternating (kAlternating) or up's after gate's (kInputsFirst), or
// [experts][outputs][inputs] with up's outputs after gate's (kConsecutive).
enum class ExpertTensors { kEach, kAlternating, kInputsFirst, kConsecutive };

// Mixture of experts, each of them an MLP with or without gate, as DecoderSpec says; a token's
// output is the weighted sum of those it chose, plus the shared one.
struct MoeSpec {
  RouterSpec router;
  int intermediate = 0;         // of one expert
  int shared_intermediate = 0;  // of the MLP that every token takes too; 0: none
  bool shared_router = false;   // it is times the sigmoid of a linear of its own
  ExpertTensors tensors = ExpertTensors::kEach;
  bool bias = false;  // of the experts' linears
  // Gemma 4: the layer's MLP is
  //   shared_post_norm(shared(mlp_norm(x))) + expert_post_norm(experts(expert_norm(x)))
  // and the router takes router_norm / sqrt(hidden) times x over its root mean square.
  bool apart = false;
  // Llama 4: a token's weight for an expert multiplies the expert's input, not its output.
  bool weighs_input = false;
  // GPT-OSS: the kernels' clamped_swiglu instead of the activation; 0: not used
  float swiglu_limit = 0, swiglu_alpha = 1;
};

// The head of a model that gives a text, or a pair of them, a score for each label:
// out(norm(activation(dense(x)))), where x is the last hidden state of the first token or the mean
// of all tokens'; an absent norm is the identity.
struct ClassifierSpec {
  enum class Activation { kTanh, kGelu };
  int labels = 0;  // 0: the model has no such head
  bool of_mean = false;
  Activation activation = Activation::kTanh;
  bool dense_bias = true;
};

// A part of a model, for a pipeline (StageOf): layers outside of [begin, end) are there, but have
// no parts. Without `embeds` its input are the hidden states of the stage before, without `ends`
// its output are those for the next.
struct StageSpec {
  int begin = 0, end = -1;  // end -1: all layers
  bool embeds = true, ends = true;
};

// A decoder as plain data. An architecture file maps config.json to it; the decoder's loop reads it
// and has no branch by architecture name.
//
// A layer computes, with "attention" for whatever its mixer is, x the residual stream and absent
// norms the identity:
//   x += residual_multiplier * attention_post_norm(attention(attention_norm(x)))
//   x += residual_multiplier * mlp_post_norm(mlp_multiplier * mlp(mlp_norm(x)))
//   x *= layer_scale
// and the term of LayerInputSpec before the last, without the part, and the part's norms, that the
// layer lacks, or, if the parts stand side by side, both from attention_norm of the layer's input;
// or, if post norms are of sums, x = attention_post_norm(x + attention(attention_norm(x))), and so
// for the MLP.
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
  bool post_norms_of_sums = false;
  // Every token of a sequence sees all of it (or its window, both ways): an encoder. A sequence is
  // then computed at once, in one slice of a step.
  bool bidirectional = false;

  // gated: down(activation(mlp_gate_multiplier * gate(x)) * up(x)); else down(activation(up(x)))
  kernels::Activation activation = kernels::Activation::kSilu;
  bool gated = true;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, norm_bias = false;
  bool tied_head = false;
  // q has two parts for each head, query and gate; the head's output is times sigmoid(gate).
  bool attention_gate = false;

  LatentSpec latent;
  IndexSpec index;     // of latent attention
  DeltaSpec delta;     // of the layers whose mixer is kDeltaNet
  ShortConvSpec conv;  // of the layers whose mixer is kShortConv
  MambaSpec mamba;     // of the layers whose mixer is kMamba or kAttentionAndMamba
  MoeSpec moe;         // of the layers whose MLP is kExperts
  LayerInputSpec layer_inputs;
  AltUpSpec alt_up;
  // LAuReL (arXiv:2411.07501): after attention x = (x + norm(right(left(n))) + n) / sqrt(2), where
  // n is what attention takes, and left gives so many elements; 0: none.
  int laurel_rank = 0;
  ClassifierSpec classifier;

  float attention_scale = 1;     // multiplies q.k; by default 1 / sqrt(head_dim)
  float attention_soft_cap = 0;  // products become cap * tanh(product / cap); 0: no cap
  float embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1;
  float attention_multiplier = 1;  // of attention's result, like Mamba-2's multipliers.out
  float mlp_multiplier = 1, mlp_gate_multiplier = 1;  // the latter of a dense or shared MLP
  QueryScale query_scale;                             // of the layers whose scales_queries is set
  float logit_soft_cap = 0;      // then logits become cap * tanh(logit / cap); 0: no cap
  int position_offset = 0;       // OPT: learned positions begin at row 2
  int token_types = 0;           // rows of type_embedding
  std::string checkpoint_dtype;  // "bfloat16", ...: --dtype auto uses it
  // config.json's, then also generation_config.json's and the tokenizer's.
  std::vector<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  TensorNames names;
  StageSpec stage;

  // Without one, a step gives the last hidden states instead of logits.
  bool has_head() const { return stage.ends && (tied_head || !names.head.empty()); }
  // Elements of a row of a step's output.
  int output_width() const { return has_head() ? vocabulary : hidden; }
};

// Reads config.json in the layout of transformers 4 or 5. Unknown architectures, and fields with
// values that would change the mathematics, are errors that name them.
Result<DecoderSpec> ReadSpec(const Json& config);

// Adds the eos_token_id (an id or a list) of config.json or generation_config.json to spec.eos_ids.
Status JoinEosIds(const Json& config, DecoderSpec& spec);

// Makes it a model that gives its last hidden states.
void DropHead(DecoderSpec& spec);

uint64_t ParameterCount(const DecoderSpec& spec);

}  // namespace pinion
