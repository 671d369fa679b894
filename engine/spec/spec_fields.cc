// The JSON of `pinion model info` about a spec.

#include <algorithm>
#include <cmath>

#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/spec_facts.h"
#include "engine/spec/spec_names.h"

namespace pinion {
namespace {

Json RopeJson(const RopeSpec& rope) {
  Json json;
  json.Set("type", rope.type);
  json.Set("dim", rope.dim);
  json.Set("interleaved", rope.interleaved);
  json.Set("theta", rope.theta);
  for (const auto& [name, words, value, neutral] : kRopeNumbers) json.Set(name, rope.*value);
  json.Set("truncate", rope.truncate);
  json.Set("short_factors", rope.short_factors);
  json.Set("long_factors", rope.long_factors);
  return json;
}

Json DeltaJson(const DeltaSpec& delta) {
  Json json;
  for (const auto& [key, value] : {std::pair{"key_heads", delta.key_heads},
                                   {"value_heads", delta.value_heads},
                                   {"key_dim", delta.key_dim},
                                   {"value_dim", delta.value_dim},
                                   {"conv_width", delta.conv_width},
                                   {"z_rank", delta.z_rank},
                                   {"a_rank", delta.a_rank}})
    json.Set(key, value);
  json.Set("decay_per_channel", delta.decay_per_channel);
  json.Set("z_activation", Name(delta.z_activation));
  return json;
}

Json MambaJson(const MambaSpec& mamba) {
  Json json;
  for (const auto& [key, value] : {std::pair{"heads", mamba.heads},
                                   {"head_dim", mamba.head_dim},
                                   {"state_dim", mamba.state_dim},
                                   {"groups", mamba.groups},
                                   {"norm_runs", mamba.norm_runs},
                                   {"conv_width", mamba.conv_width}})
    json.Set(key, value);
  json.Set("conv_bias", mamba.conv_bias);
  json.Set("dt_min", static_cast<double>(mamba.dt_min));
  json.Set("dt_max", std::isinf(mamba.dt_max) ? Json() : Json(static_cast<double>(mamba.dt_max)));
  const MambaMultipliers& times = mamba.multipliers;
  for (const auto& [key, value] : {std::pair{"z_multiplier", times.z},
                                   {"x_multiplier", times.x},
                                   {"b_multiplier", times.b},
                                   {"c_multiplier", times.c},
                                   {"dt_multiplier", times.dt},
                                   {"out_multiplier", times.out}})
    json.Set(key, static_cast<double>(value));
  return json;
}

}  // namespace

void AddSpecFields(const DecoderSpec& spec, Json& json) {
  json.Set("wrapper", spec.wrapper.empty() ? Json() : Json(spec.wrapper));
  json.Set("norm", Name(spec.norm));
  json.Set("norm_places", NormPlaces(spec.names));
  json.Set("norm_eps", static_cast<double>(spec.norm_eps));
  json.Set("norm_offset", static_cast<double>(spec.norm_offset));
  json.Set("qk_norm", Name(spec.qk_norm));
  json.Set("qk_norm_after_rope", spec.qk_norm_after_rope);
  json.Set("value_norm", spec.value_norm);
  json.Set("sinks", !spec.names.sinks.empty());
  json.Set("layer_scales", !spec.names.layer_scale.empty());
  json.Set("parts_side_by_side", spec.parts_side_by_side);
  json.Set("attention_gate", spec.attention_gate);
  json.Set("bidirectional", spec.bidirectional);
  json.Set("post_norms_of_sums", spec.post_norms_of_sums);
  json.Set("token_types", spec.token_types);
  json.Set("labels", spec.classifier.labels);
  json.Set("delta_net", spec.delta.key_heads > 0 ? DeltaJson(spec.delta) : Json());
  json.Set("conv_width", spec.conv.width);
  json.Set("mamba2", spec.mamba.heads > 0 ? MambaJson(spec.mamba) : Json());
  json.Set("query_scale", Json::Object{{"weight", spec.query_scale.weight},
                                       {"length", spec.query_scale.length},
                                       {"ahead", spec.query_scale.ahead}});
  json.Set("layer_inputs", spec.layer_inputs.size);
  json.Set("residual_streams", std::max(1, spec.alt_up.streams));
  json.Set("laurel_rank", spec.laurel_rank);
  json.Set("mlp", MlpName(spec));
  json.Set("biases", Biases(spec));
  json.Set("rotary", !spec.ropes.empty());
  Json::Array ropes;
  for (const RopeSpec& rope : spec.ropes) ropes.push_back(RopeJson(rope));
  json.Set("ropes", Json(std::move(ropes)));
  std::vector<int> windows, chunks, rope_of_layer, head_dims, kv_heads, kv_from, widths;
  Json::Array gate_cuts;
  std::vector<bool> keys_as_values;
  std::vector<std::string> mixers, mlps;
  for (size_t i = 0; i < spec.layer_specs.size(); ++i) {
    const LayerSpec& layer = spec.layer_specs[i];
    head_dims.push_back(LayerHeads(spec, i).head_dim);
    kv_heads.push_back(LayerHeads(spec, i).kv_heads);
    keys_as_values.push_back(layer.keys_as_values);
    mixers.emplace_back(Name(layer.mixer));
    mlps.emplace_back(Name(layer.mlp));
    windows.push_back(layer.window);
    chunks.push_back(layer.chunk);
    kv_from.push_back(layer.kv_from);
    widths.push_back(static_cast<int>(MlpWidth(spec, i)));
    gate_cuts.push_back(layer.gate_cut ? Json(static_cast<double>(*layer.gate_cut)) : Json());
    rope_of_layer.push_back(layer.rope);
  }
  json.Set("windows", windows);
  json.Set("chunks", chunks);
  json.Set("kv_from", kv_from);
  json.Set("mlp_width_of_layer", widths);
  json.Set("gate_cuts", Json(std::move(gate_cuts)));
  json.Set("rope_of_layer", rope_of_layer);
  json.Set("mixers", mixers);
  json.Set("mlps", mlps);
  json.Set("head_dim_of_layer", head_dims);
  json.Set("kv_heads_of_layer", kv_heads);
  json.Set("keys_as_values", keys_as_values);
  json.Set("attention_scale", static_cast<double>(spec.attention_scale));
  for (const auto& [name, words, value, neutral] : kSpecMultipliers)
    json.Set(name, static_cast<double>(spec.*value));
  json.Set("position_offset", spec.position_offset);
  json.Set("tied_head", spec.tied_head);
  json.Set("head", spec.has_head());
}

}  // namespace pinion
