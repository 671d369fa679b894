#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

enum class NormKind { kRms, kLayer };
// Gated: down(silu(gate(x)) * up(x)). Plain: down(relu(up(x))).
enum class MlpKind { kSiluGated, kRelu };

// Names of a decoder's tensors; "{}" stands for the layer. Empty: the model has no such tensor.
// Each linear's weight is NAME.weight [outputs][inputs], its bias NAME.bias where the spec says so.
struct TensorNames {
  std::string embedding;           // whole name, [vocabulary][hidden]
  std::string position_embedding;  // whole name, [max_positions + offset][hidden]
  std::string attention_norm, mlp_norm, q, k, v, o, gate, up, down;  // up, down: fc1, fc2 if plain
  std::string final_norm;
  std::string head;  // whole name; unused where the head is tied to the embedding
  // Prefixes that real checkpoints of the architecture spell otherwise: {"model.", ""} says that
  // "model.norm.weight" may be stored as "norm.weight". OpenWeights alone applies them.
  std::vector<std::pair<std::string, std::string>> prefix_aliases;
};

// A decoder as plain data. An architecture file maps config.json to it; the decoder's loop reads it
// and has no branch by architecture name.
struct DecoderSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int vocabulary = 0;
  int max_positions = 0;  // the model's longest sequence
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  MlpKind mlp = MlpKind::kSiluGated;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, norm_bias = false;
  bool tied_head = false;
  bool rotary = true;
  // [head_dim / 2], scaling already applied; empty without rotary
  std::vector<float> rope_inv_freq;
  float rope_scale = 1;          // multiplies cos and sin (attention factor)
  int position_offset = 0;       // OPT: learned positions begin at row 2
  std::string checkpoint_dtype;  // "bfloat16", ...: what --dtype auto takes
  std::vector<int32_t> eos_ids;  // config.json's; generation_config.json's come on top
  std::optional<int32_t> bos_id;
  TensorNames names;
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
