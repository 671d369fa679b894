#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/model/format_plan.h"
#include "engine/model/rope.h"
#include "kernels/kernels.h"

namespace pinion {

enum class NormKind { kRms, kLayer };
enum class MlpKind { kDense };
// What is normalised before queries and keys are rotated: each head by itself, or everything that
// the projection gives (across all ranks).
enum class QkNorm { kNone, kPerHead, kWhole };

// Names of a decoder's tensors; "{}" stands for the layer. Empty: the model has no such tensor, and
// what it would do is not done. Each linear's weight is NAME.weight [outputs][inputs], its bias
// NAME.bias where the spec says so.
struct TensorNames {
  std::string embedding;           // whole name, [vocabulary][hidden]
  std::string position_embedding;  // whole name, [max_positions + offset][hidden]
  // Norms of what attention and MLP read, and of what they add to the residual stream.
  std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
  std::string q_norm, k_norm;  // [head_dim] or, over the whole projection, [heads * head_dim]
  std::string q, k, v;
  std::string qkv;                // instead of q, k, v: their rows in one tensor, in this order
  std::string o, gate, up, down;  // up, down: fc1, fc2 where there is no gate
  std::string gate_up;            // instead of gate, up: their rows in one tensor, in this order
  std::string final_norm;
  std::string head;  // whole name; unused where the head is tied to the embedding
  // Prefixes that real checkpoints of the architecture spell otherwise: {"model.", ""} says that
  // "model.norm.weight" may be stored as "norm.weight". OpenWeights alone applies them.
  std::vector<std::pair<std::string, std::string>> prefix_aliases;
};

// What may differ from layer to layer.
struct LayerSpec {
  int window = 0;  // a token sees itself and window - 1 before it; 0: everything before it
  int rope = 0;    // index into DecoderSpec::ropes; -1: queries and keys are not rotated
  MlpKind mlp = MlpKind::kDense;
};

// A decoder as plain data. An architecture file maps config.json to it; the decoder's loop reads it
// and has no branch by architecture name.
//
// A layer computes, with x the residual stream and absent norms the identity:
//   x += residual_multiplier * attention_post_norm(attention(attention_norm(x)))
//   x += residual_multiplier * mlp_post_norm(mlp(mlp_norm(x)))
struct DecoderSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int vocabulary = 0;
  int max_positions = 0;               // the model's longest sequence
  std::vector<LayerSpec> layer_specs;  // [layers]
  std::vector<RopeSpec> ropes;         // that layers choose from; none: no rotary embedding

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  float norm_offset = 0;  // added to every norm's weight: Gemma stores w - 1
  QkNorm qk_norm = QkNorm::kNone;

  // gated: down(activation(gate(x)) * up(x)); else down(activation(up(x)))
  kernels::Activation activation = kernels::Activation::kSilu;
  bool gated = true;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, norm_bias = false;
  bool tied_head = false;

  float attention_scale = 1;  // multiplies q.k; 1 / sqrt(head_dim) where config.json says nothing
  float attention_soft_cap = 0;  // products become cap * tanh(product / cap); 0: they do not
  float embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1;
  float logit_soft_cap = 0;      // logits become cap * tanh(logit / cap), multiplied before; 0: not
  int position_offset = 0;       // OPT: learned positions begin at row 2
  std::string checkpoint_dtype;  // "bfloat16", ...: what --dtype auto takes
  std::vector<int32_t> eos_ids;  // config.json's; generation_config.json's come on top
  std::optional<int32_t> bos_id;
  TensorNames names;
  FormatPlan formats;  // matrices that stay in integers; no config says that, PlanFormats does
};

// Reads config.json in the layout of transformers 4 or 5. Unknown architectures and fields whose
// value would change the mathematics are errors that name them.
Result<DecoderSpec> ReadSpec(const Json& config);

// Adds the eos_token_id (an id or a list) of config.json or generation_config.json to spec.eos_ids.
Status JoinEosIds(const Json& config, DecoderSpec& spec);

// Names of the architectures that ReadSpec knows, for error messages and help.
std::vector<std::string> KnownArchitectures();

uint64_t ParameterCount(const DecoderSpec& spec);
uint64_t KvBytesPerToken(const DecoderSpec& spec, size_t bytes_per_element);

}  // namespace pinion
