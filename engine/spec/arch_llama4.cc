// Llama 4: three of four layers rotate queries and keys, normalise them afterwards and attend
// within chunks; the others see everything and scale their queries by position. A token's weight
// multiplies what an expert takes. Published checkpoints are of text and images
// (Llama4ForConditionalGeneration).

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

// A list with an entry for each layer; null if absent or empty.
Result<const Json*> Llama4LayerList(const Json& config, std::string_view key,
                                    const DecoderSpec& spec) {
  const Json* list = config.Find(key);
  if (!list || list->is_null()) return nullptr;
  if (!list->is_array())
    return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' is ", list->type_name(), ", want a list"));
  if (list->array().empty()) return nullptr;
  if (list->array().size() != spec.layer_specs.size())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'", key, "' lists ", list->array().size(), " layers, want ", spec.layers));
  return list;
}

// no_rope_layers has a 1 for each layer with rope; without it, every n-th has none.
Status ReadLlama4Ropes(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int every, OptionalIn(config, "no_rope_layer_interval", 1, kMaxLayers, 4));
  PINION_ASSIGN(const Json* list, Llama4LayerList(config, "no_rope_layers", spec));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    bool rotates = (i + 1) % static_cast<size_t>(every) != 0;
    if (list) {
      const Json& entry = list->array()[i];
      if (!entry.is_int() || entry.integer() < 0 || entry.integer() > 1)
        return Fail(ErrorCode::kCorrupt,
                    StrCat("'no_rope_layers' holds ", entry.Dump().substr(0, 60), ", want 0 or 1"));
      rotates = entry.integer() == 1;
    }
    spec.layer_specs[i].rope = rotates ? 0 : -1;
  }
  return {};
}

// By 'layer_types' if present, else layers with rope attend within chunks; a size of null means
// that none does.
Status ReadLlama4Chunks(const Json& config, DecoderSpec& spec) {
  const Json* unlimited = config.Find("attention_chunk_size");
  PINION_ASSIGN(const int chunk,
                unlimited && unlimited->is_null()
                    ? Result<int>(0)
                    : OptionalIn(config, "attention_chunk_size", 1, kMaxPositions, 8192));
  PINION_ASSIGN(const Json* list, Llama4LayerList(config, "layer_types", spec));
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    LayerSpec& layer = spec.layer_specs[i];
    bool chunked = layer.rope >= 0;
    if (list) {
      const Json& type = list->array()[i];
      chunked = type.is_string() && type.string() == "chunked_attention";
      if (!chunked && !(type.is_string() && type.string() == "full_attention"))
        return Fail(ErrorCode::kUnsupported,
                    StrCat("'layer_types' holds ", type.Dump().substr(0, 60),
                           ", want chunked_attention or full_attention"));
    }
    if (chunked) layer.chunk = chunk;
  }
  return {};
}

// Published as true or as a number that means true.
Result<bool> ScalesQueries(const Json& config) {
  const Json* given = config.Find("attn_temperature_tuning");
  if (given && given->is_int()) return given->integer() != 0;
  return Optional<bool>(config, "attn_temperature_tuning", true);
}

Status ReadLlama4Queries(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const bool scales, ScalesQueries(config));
  if (scales) {
    PINION_ASSIGN(const float weight, OptionalPositive(config, "attn_scale", 0.1f));
    PINION_ASSIGN(const int length, OptionalIn(config, "floor_scale", 1, kMaxPositions, 8192));
    spec.query_scale = {weight, static_cast<double>(length), 1};
  }
  PINION_ASSIGN(const bool normed, Optional<bool>(config, "use_qk_norm", true));
  if (normed) spec.qk_norm = QkNorm::kPerHead;
  spec.qk_norm_after_rope = normed;
  for (LayerSpec& layer : spec.layer_specs) {
    layer.scales_queries = scales && layer.rope < 0;
    layer.qk_norm = layer.rope >= 0;
  }
  spec.ropes.at(0).interleaved = true;
  return {};
}

// By 'moe_layers' if present and not empty, else every n-th layer, the n-th first.
Status ReadLlama4LayerKinds(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const int step, OptionalIn(config, "interleave_moe_layer_step", 1, kMaxLayers, 1));
  const Json* list = config.Find("moe_layers");
  const bool listed = list && list->is_array() && !list->array().empty();
  if (list && !list->is_null() && !list->is_array())
    return Fail(ErrorCode::kCorrupt,
                StrCat("'moe_layers' is ", list->type_name(), ", want a list"));
  for (size_t i = 0; !listed && i < spec.layer_specs.size(); ++i)
    if ((i + 1) % static_cast<size_t>(step) == 0) spec.layer_specs[i].mlp = MlpKind::kExperts;
  if (!listed) return {};
  for (const Json& entry : list->array()) {
    if (!entry.is_int() || entry.integer() < 0 || entry.integer() >= spec.layers)
      return Fail(ErrorCode::kCorrupt, StrCat("'moe_layers' holds ", entry.Dump().substr(0, 60),
                                              ", want layers from 0 to ", spec.layers - 1));
    spec.layer_specs[static_cast<size_t>(entry.integer())].mlp = MlpKind::kExperts;
  }
  return {};
}

Status ReadLlama4Mixture(const Json& config, DecoderSpec& spec) {
  MoeSpec& moe = spec.moe;
  PINION_ASSIGN(moe.router.experts, RequireIn(config, "num_local_experts", 1, kMaxExperts));
  PINION_ASSIGN(moe.router.top_k, OptionalIn(config, "num_experts_per_tok", 1, kMaxExperts, 1));
  moe.router.score = RouterScore::kSigmoid;
  moe.weighs_input = true;
  // 'intermediate_size' is that of an expert and of the shared one.
  moe.intermediate = moe.shared_intermediate = spec.intermediate;
  PINION_ASSIGN(spec.intermediate, RequireIn(config, "intermediate_size_mlp", 1, kMaxIntermediate));
  moe.tensors = ExpertTensors::kInputsFirst;
  TensorNames& names = spec.names;
  const std::string part = "model.layers.{}.feed_forward.", shared = part + "shared_expert.";
  names.gate = part + "gate_proj";
  names.up = part + "up_proj";
  names.down = part + "down_proj";
  names.router = part + "router";
  names.experts_gate_up = part + "experts.gate_up_proj";
  names.experts_down = part + "experts.down_proj";
  names.shared_gate = shared + "gate_proj";
  names.shared_up = shared + "up_proj";
  names.shared_down = shared + "down_proj";
  return ReadLlama4LayerKinds(config, spec);
}

Status ReadLlama4(const Json& config, DecoderSpec& spec) {
  PINION_TRY(ReadLlamaShape(config, spec));
  PINION_TRY(ReadLlama4Ropes(config, spec));
  PINION_TRY(ReadLlama4Chunks(config, spec));
  PINION_TRY(ReadLlama4Queries(config, spec));
  return ReadLlama4Mixture(config, spec);
}

constexpr NeutralField kLlama4Neutral[] = {{"hidden_act", "silu"}, {"attention_bias", "false"}};
constexpr std::string_view kLlama4Reads[] = {"attention_chunk_size", "layer_types",
                                             "no_rope_layers", "num_local_experts", "use_qk_norm"};

}  // namespace

extern const Architecture kLlama4;
const Architecture kLlama4 = {"Llama4ForCausalLM",
                              "llama4_text",
                              "Llama 4",
                              kLlama4Neutral,
                              ReadLlama4,
                              kLlama4Reads,
                              R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-05,
        "max_position_embeddings": 131072, "rope_theta": 500000.0})",
                              "Llama4ForConditionalGeneration"};

}  // namespace pinion
