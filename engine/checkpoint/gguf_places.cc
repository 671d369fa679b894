#include "engine/checkpoint/gguf_places.h"

#include <set>
#include <string_view>

#include "engine/base/strings.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

// How the file's rows, columns or values differ from the model's, in those architectures whose
// entry says that they do.
enum class Form {
  kSame,
  kPairs,        // rows of heads whose rotated pairs may be neighbours
  kChannels,     // rows of DeltaNet's queries and keys, then those of its value heads
  kValues,       // the rows of each value head
  kValueInputs,  // the columns of each value head
  kHeads,        // a row of each value head
  kDecays,       // the same, as -exp of its value
  kDecay,        // of Mamba-2's heads, likewise
  kExperts,      // one of a tensor of all experts
  kStreams,      // one of a tensor of all residual streams but the first
};

// Names in the file of what the spec names; "{}" stands for the layer. A name of theirs without a
// suffix stands for weight and bias.
struct NamePair {
  std::string TensorNames::*ours;
  std::string_view theirs;
  Form form = Form::kSame;
};
constexpr NamePair kNames[] = {
    {&TensorNames::embedding, "token_embd.weight"},
    {&TensorNames::position_embedding, "position_embd.weight"},
    {&TensorNames::type_embedding, "token_types.weight"},
    {&TensorNames::embedding_norm, "token_embd_norm"},
    {&TensorNames::head, "output.weight"},
    {&TensorNames::classifier_dense, "cls"},
    {&TensorNames::classifier_norm, "cls.norm"},
    {&TensorNames::classifier_out, "cls.output"},
    {&TensorNames::final_norm, "output_norm"},
    {&TensorNames::attention_norm, "blk.{}.attn_norm"},
    {&TensorNames::attention_post_norm, "blk.{}.post_attention_norm"},
    {&TensorNames::mlp_norm, "blk.{}.ffn_norm"},
    {&TensorNames::mlp_post_norm, "blk.{}.post_ffw_norm"},
    {&TensorNames::layer_scale, "blk.{}.layer_output_scale.weight"},
    {&TensorNames::q, "blk.{}.attn_q", Form::kPairs},
    {&TensorNames::k, "blk.{}.attn_k", Form::kPairs},
    {&TensorNames::v, "blk.{}.attn_v"},
    {&TensorNames::qkv, "blk.{}.attn_qkv"},
    {&TensorNames::o, "blk.{}.attn_output"},
    {&TensorNames::q_norm, "blk.{}.attn_q_norm"},
    {&TensorNames::k_norm, "blk.{}.attn_k_norm"},
    {&TensorNames::sinks, "blk.{}.attn_sinks.weight"},
    {&TensorNames::conv_in, "blk.{}.shortconv.in_proj"},
    {&TensorNames::conv, "blk.{}.shortconv.conv"},
    {&TensorNames::conv_o, "blk.{}.shortconv.out_proj"},
    {&TensorNames::q_a, "blk.{}.attn_q_a"},
    {&TensorNames::q_a_norm, "blk.{}.attn_q_a_norm"},
    {&TensorNames::q_b, "blk.{}.attn_q_b"},
    {&TensorNames::kv_a, "blk.{}.attn_kv_a_mqa"},
    {&TensorNames::kv_a_norm, "blk.{}.attn_kv_a_norm"},
    {&TensorNames::kv_b, "blk.{}.attn_kv_b"},
    {&TensorNames::index_q, "blk.{}.indexer.attn_q_b"},
    {&TensorNames::index_k, "blk.{}.indexer.attn_k"},
    {&TensorNames::index_weights, "blk.{}.indexer.proj"},
    {&TensorNames::index_k_norm, "blk.{}.indexer.k_norm"},
    {&TensorNames::delta_q, "blk.{}.attn_q"},
    {&TensorNames::delta_k, "blk.{}.attn_k"},
    {&TensorNames::delta_v, "blk.{}.attn_v"},
    {&TensorNames::delta_qkv, "blk.{}.attn_qkv", Form::kChannels},
    {&TensorNames::delta_z, "blk.{}.attn_gate", Form::kValues},
    {&TensorNames::delta_b, "blk.{}.ssm_beta", Form::kHeads},
    {&TensorNames::delta_a, "blk.{}.ssm_alpha", Form::kHeads},
    {&TensorNames::delta_qkvz, "blk.{}.ssm_in"},
    {&TensorNames::delta_ba, "blk.{}.ssm_ba"},
    {&TensorNames::delta_a_down, "blk.{}.ssm_f_a"},
    {&TensorNames::delta_a_up, "blk.{}.ssm_f_b"},
    {&TensorNames::delta_z_down, "blk.{}.ssm_g_a"},
    {&TensorNames::delta_z_up, "blk.{}.ssm_g_b"},
    {&TensorNames::delta_conv, "blk.{}.ssm_conv1d", Form::kChannels},
    {&TensorNames::delta_conv_q, "blk.{}.ssm_conv1d_q"},
    {&TensorNames::delta_conv_k, "blk.{}.ssm_conv1d_k"},
    {&TensorNames::delta_conv_v, "blk.{}.ssm_conv1d_v"},
    {&TensorNames::delta_decay, "blk.{}.ssm_a", Form::kDecays},
    {&TensorNames::delta_dt_bias, "blk.{}.ssm_dt.bias", Form::kHeads},
    {&TensorNames::delta_norm, "blk.{}.ssm_norm"},
    {&TensorNames::delta_o, "blk.{}.ssm_out", Form::kValueInputs},
    {&TensorNames::mamba_in, "blk.{}.ssm_in"},
    {&TensorNames::mamba_conv, "blk.{}.ssm_conv1d"},
    {&TensorNames::mamba_decay, "blk.{}.ssm_a", Form::kDecay},
    {&TensorNames::mamba_skip, "blk.{}.ssm_d"},
    {&TensorNames::mamba_dt_bias, "blk.{}.ssm_dt.bias"},
    {&TensorNames::mamba_norm, "blk.{}.ssm_norm"},
    {&TensorNames::mamba_o, "blk.{}.ssm_out"},
    {&TensorNames::gate, "blk.{}.ffn_gate"},
    {&TensorNames::up, "blk.{}.ffn_up"},
    {&TensorNames::gate_up, "blk.{}.ffn_up"},
    {&TensorNames::down, "blk.{}.ffn_down"},
    {&TensorNames::router, "blk.{}.ffn_gate_inp"},
    {&TensorNames::router_correction, "blk.{}.exp_probs_b.bias"},
    {&TensorNames::router_norm, "blk.{}.ffn_gate_inp.scale"},
    {&TensorNames::router_expert_scale, "blk.{}.ffn_down_exps.scale"},
    {&TensorNames::expert_norm, "blk.{}.pre_ffw_norm_2"},
    {&TensorNames::expert_post_norm, "blk.{}.post_ffw_norm_2"},
    {&TensorNames::shared_post_norm, "blk.{}.post_ffw_norm_1"},
    {&TensorNames::expert_gate, "blk.{}.ffn_gate_exps", Form::kExperts},
    {&TensorNames::expert_up, "blk.{}.ffn_up_exps", Form::kExperts},
    {&TensorNames::expert_down, "blk.{}.ffn_down_exps", Form::kExperts},
    {&TensorNames::shared_gate, "blk.{}.ffn_gate_shexp"},
    {&TensorNames::shared_up, "blk.{}.ffn_up_shexp"},
    {&TensorNames::shared_down, "blk.{}.ffn_down_shexp"},
    {&TensorNames::shared_router, "blk.{}.ffn_gate_inp_shexp"},
    {&TensorNames::layer_input_table, "per_layer_token_embd.weight"},
    {&TensorNames::layer_input_projection, "per_layer_model_proj"},
    {&TensorNames::layer_input_norm, "per_layer_proj_norm"},
    {&TensorNames::layer_input_gate, "blk.{}.inp_gate"},
    {&TensorNames::layer_input_out, "blk.{}.proj"},
    {&TensorNames::layer_input_post_norm, "blk.{}.post_norm"},
    {&TensorNames::altup_router, "blk.{}.altup_router"},
    {&TensorNames::altup_router_norm, "blk.{}.altup_router_norm"},
    {&TensorNames::altup_predict, "blk.{}.altup_predict_coef"},
    {&TensorNames::altup_correct, "blk.{}.altup_correct_coef"},
    {&TensorNames::altup_scale, "blk.{}.altup_correct_scale.weight"},
    {&TensorNames::altup_in, "altup_proj", Form::kStreams},
    {&TensorNames::altup_out, "altup_unembd_proj", Form::kStreams},
    {&TensorNames::laurel_left, "blk.{}.laurel_l"},
    {&TensorNames::laurel_right, "blk.{}.laurel_r"},
    {&TensorNames::laurel_norm, "blk.{}.laurel_post_norm"},
};
// Gate and up of all experts may be one tensor, up's outputs behind gate's.
constexpr std::string_view kGateUp = "blk.{}.ffn_gate_up_exps";
// b and a of DeltaNet may be one tensor: of each key head's value heads b, then a.
constexpr std::string_view kBetaAlpha = "blk.{}.ssm_ba";

size_t SizeT(int n) { return static_cast<size_t>(n); }

class Collector {
 public:
  Collector(const DecoderSpec& spec, const GgufArchitecture& architecture, const GgufHeader& header,
            std::map<std::string, GgufPlace>& places)
      : spec_(spec), architecture_(architecture), places_(places) {
    for (const GgufTensor& tensor : header.tensors) held_.insert(tensor.name);
  }

  void Add(const NamePair& pair) {
    const std::string& ours = spec_.names.*pair.ours;
    if (ours.empty()) return;
    const int layers = pair.theirs.starts_with("blk.") ? spec_.layers : 1;
    for (int layer = 0; layer < layers; ++layer) {
      if (pair.form == Form::kExperts)
        AddExperts(pair, layer);
      else if (pair.form != Form::kStreams)
        places_[LayerTensor(ours, layer)] = PlaceOf(pair, layer);
    }
    const int streams = pair.form == Form::kStreams ? spec_.alt_up.streams - 1 : 0;
    for (int stream = 0; stream < streams; ++stream)
      places_[LayerTensor(ours, stream)] = {std::string(pair.theirs), stream, streams};
  }

 private:
  void AddExperts(const NamePair& pair, int layer) {
    const int experts = spec_.moe.router.experts;
    const bool is_down = pair.ours == &TensorNames::expert_down;
    const std::string together = LayerTensor(kGateUp, layer);
    GgufPlace place{LayerTensor(pair.theirs, layer), -1, experts};
    if (!is_down && held_.contains(together + ".weight")) {
      place.name = together;
      place.half = pair.ours == &TensorNames::expert_gate ? 0 : 1;
    }
    for (place.part = 0; place.part < experts; ++place.part)
      places_[ExpertTensor(spec_.names.*pair.ours, layer, place.part)] = place;
  }

  GgufPlace PlaceOf(const NamePair& pair, int layer) const {
    const DeltaSpec& delta = spec_.delta;
    const auto value_dim = SizeT(delta.value_dim);
    GgufPlace place{LayerTensor(pair.theirs, layer)};
    switch (pair.form) {
      case Form::kPairs:
        if (architecture_.permuted) place.rows = {0, 2, SizeT(spec_.head_dim) / 2};
        break;
      case Form::kChannels:
        place.rows = ValueHeads(2 * SizeT(delta.key_heads) * SizeT(delta.key_dim), value_dim);
        break;
      case Form::kValues:
        place.rows = ValueHeads(0, value_dim);
        break;
      case Form::kValueInputs:
        place.columns = ValueHeads(0, value_dim);
        break;
      case Form::kHeads:
        place.rows = ValueHeads(0, 1);
        if (pair.theirs == kBetaAlpha) CutGates(pair, place.rows);
        break;
      case Form::kDecays:
        place.rows = ValueHeads(0, 1);
        place.is_negated_exp = true;
        break;
      case Form::kDecay:
        place.is_negated_exp = true;
        break;
      default:
        break;
    }
    return place;
  }

  // Value heads of one key head follow each other in the model, and in files that are tiled lie as
  // far apart as there are key heads.
  GgufOrder ValueHeads(size_t first, size_t unit) const {
    const DeltaSpec& delta = spec_.delta;
    if (!architecture_.tiled_values || delta.key_heads == 0) return {};
    return {first, SizeT(delta.key_heads), SizeT(delta.heads_per_key()), unit};
  }

  void CutGates(const NamePair& pair, GgufOrder& order) const {
    order.run = SizeT(spec_.delta.heads_per_key());
    order.stride = 2 * order.run;
    order.offset = pair.ours == &TensorNames::delta_a ? order.run : 0;
  }

  const DecoderSpec& spec_;
  const GgufArchitecture& architecture_;
  std::map<std::string, GgufPlace>& places_;
  std::set<std::string_view> held_;
};

}  // namespace

GgufPlaces::GgufPlaces(const DecoderSpec& spec, const GgufArchitecture& architecture,
                       const GgufHeader& header) {
  Collector collector(spec, architecture, header, places_);
  for (NamePair pair : kNames) {
    for (const GgufName& renamed : architecture.renamed)
      if (pair.ours == renamed.ours) pair.theirs = renamed.theirs;
    collector.Add(pair);
  }
}

GgufPlace GgufPlaces::Of(const std::string& name) const {
  if (const auto whole = places_.find(name); whole != places_.end()) return whole->second;
  const size_t dot = name.rfind('.');
  const auto module = places_.find(name.substr(0, dot));
  if (dot == std::string::npos || module == places_.end()) return {};
  GgufPlace place = module->second;
  place.name += name.substr(dot);
  return place;
}

}  // namespace pinion
