// Gemma 3n: several residual streams (AltUp), a low-rank term beside attention (LAuReL), inputs of
// each layer by token, keys and values that the last layers share, MLPs that keep the largest gates
// alone in the first layers.

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/spec/architecture.h"

namespace pinion {
namespace {

void NameGemma3nTensors(TensorNames& names) {
  const std::string layer = "model.layers.{}.", altup = layer + "altup.";
  names.q_norm = layer + "self_attn.q_norm";
  names.k_norm = layer + "self_attn.k_norm";
  names.attention_post_norm = layer + "post_attention_layernorm";
  names.mlp_norm = layer + "pre_feedforward_layernorm";
  names.mlp_post_norm = layer + "post_feedforward_layernorm";
  names.laurel_left = layer + "laurel.linear_left";
  names.laurel_right = layer + "laurel.linear_right";
  names.laurel_norm = layer + "laurel.post_laurel_norm";
  names.altup_router = altup + "modality_router";
  names.altup_router_norm = altup + "router_norm";
  names.altup_predict = altup + "prediction_coefs";
  names.altup_correct = altup + "correction_coefs";
  names.altup_scale = altup + "correct_output_scale";
  names.altup_in = "model.altup_projections.{}";
  names.altup_out = "model.altup_unembed_projections.{}";
}

// 'intermediate_size' may be a list of one for each layer: the config with the largest alone.
Result<Json> WithOneWidth(Json config) {
  const Json* widths = config.Find("intermediate_size");
  if (!widths || !widths->is_array()) return config;
  int64_t widest = 0;
  for (const Json& width : widths->array()) {
    if (!width.is_int())
      return Fail(ErrorCode::kCorrupt, StrCat("'intermediate_size' holds ",
                                              width.Dump().substr(0, 60), ", want integers"));
    widest = std::max(widest, width.integer());
  }
  config.Set("intermediate_size", widest);
  return config;
}

Status CheckLength(const Json& list, std::string_view key, const DecoderSpec& spec) {
  if (list.is_array() && list.array().size() == spec.layer_specs.size()) return {};
  return Fail(ErrorCode::kCorrupt, StrCat("'", key, "' must be a list of one number for each of ",
                                          spec.layers, " layers"));
}

Status ReadLayerWidths(const Json& config, DecoderSpec& spec) {
  const Json* widths = config.Find("intermediate_size");
  if (!widths || !widths->is_array()) return {};
  PINION_TRY(CheckLength(*widths, "intermediate_size", spec));
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    const int64_t width = widths->array()[layer].integer();
    if (width < 1 || width > kMaxIntermediate)
      return Fail(ErrorCode::kCorrupt,
                  StrCat("'intermediate_size' holds ", width, ", want 1 to ", kMaxIntermediate));
    if (width != spec.intermediate) spec.layer_specs[layer].intermediate = static_cast<int>(width);
  }
  return {};
}

// The value that a standard normal variable exceeds with probability 1 - p.
float NormalQuantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return static_cast<float>(low);
}

// The share of gates that a layer's MLP leaves out. Without the list: 0.95 in the first ten layers
// of a deeper model, as there.
Status ReadSparsity(const Json& config, DecoderSpec& spec) {
  constexpr std::string_view kKey = "activation_sparsity_pattern";
  constexpr size_t kSparseLayers = 10;
  const Json* pattern = config.Find(kKey);
  const bool listed = pattern && !pattern->is_null();
  if (listed) PINION_TRY(CheckLength(*pattern, kKey, spec));
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    const bool sparse = spec.layer_specs.size() > kSparseLayers && layer < kSparseLayers;
    const Json given = listed ? pattern->array()[layer] : Json(sparse ? 0.95 : 0.0);
    if (!given.is_number() || given.number() < 0 || given.number() >= 1)
      return Fail(ErrorCode::kCorrupt, StrCat("'", kKey, "' holds ", given.Dump().substr(0, 60),
                                              ", want numbers from 0 to below 1"));
    if (given.number() > 0) spec.layer_specs[layer].gate_cut = NormalQuantile(given.number());
  }
  return {};
}

Status ReadStreams(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(spec.alt_up.streams, OptionalIn(config, "altup_num_inputs", 1, kMaxStreams, 4));
  // 'altup_coef_clip' bounds weights in training only.
  PINION_ASSIGN(const bool scales, Optional<bool>(config, "altup_correct_scale", true));
  if (!scales) spec.names.altup_scale.clear();
  PINION_ASSIGN(spec.laurel_rank, OptionalIn(config, "laurel_rank", 1, kMaxHidden, 64));
  return {};
}

Status ReadGemma3n(const Json& config, DecoderSpec& spec) {
  PINION_ASSIGN(const Json uniform, WithOneWidth(WithFullRope(config)));
  PINION_TRY(ReadLlamaShape(uniform, spec));
  PINION_ASSIGN(spec.activation, ReadActivation(config, "hidden_activation"));
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1;
  spec.qk_norm = QkNorm::kPerHead;
  spec.value_norm = true;
  PINION_ASSIGN(spec.logit_soft_cap, OptionalPositive(config, "final_logit_softcapping", 0));
  NameGemma3nTensors(spec.names);
  PINION_TRY(ReadLayerWidths(config, spec));
  PINION_TRY(ReadSparsity(config, spec));
  PINION_TRY(ReadStreams(config, spec));
  // Four layers with a window, one without.
  PINION_TRY(ReadWindows(config, spec, [](int i) { return i % 5 != 4; }));
  PINION_TRY(ReadLayerInputs(config, spec));
  PINION_TRY(ShareKeysAndValues(config, spec));
  PINION_ASSIGN(const double base, Optional<double>(config, "rope_local_base_freq", 10000.0));
  return AddWindowRope(config, Json::Object{{"rope_theta", base}}, spec);
}

constexpr NeutralField kGemma3nNeutral[] = {{"attention_bias", "false"}, {"altup_active_idx", "0"}};
constexpr std::string_view kGemma3nReads[] = {"layer_types", "final_logit_softcapping",
                                              "rope_local_base_freq", "query_pre_attn_scalar"};

}  // namespace

extern const Architecture kGemma3n;
const Architecture kGemma3n = {"Gemma3nForCausalLM",
                               "gemma3n_text",
                               "Gemma 3n",
                               kGemma3nNeutral,
                               ReadGemma3n,
                               kGemma3nReads,
                               R"({"vocab_size": 262400, "num_key_value_heads": 2, "head_dim": 256,
        "max_position_embeddings": 32768, "sliding_window": 512, "rope_theta": 1000000.0,
        "final_logit_softcapping": 30.0, "altup_coef_clip": 120.0, "num_kv_shared_layers": 15,
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true})",
                               "Gemma3nForConditionalGeneration"};

}  // namespace pinion
