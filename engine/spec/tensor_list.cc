#include "engine/spec/tensor_list.h"

#include "engine/base/strings.h"
#include "engine/spec/attention_spec.h"

namespace pinion {
namespace {

// Collects the list; every method adds one module's tensors.
class Collector {
 public:
  explicit Collector(const DecoderSpec& spec) : spec_(spec) {}

  void Whole(const std::string& name, std::vector<int64_t> shape, TensorRole role) {
    if (!name.empty()) list_.push_back({name, std::move(shape), role, layer_});
  }
  void Norm(const std::string& module) {
    if (module.empty()) return;
    Whole(module + ".weight", {spec_.hidden}, TensorRole::kNorm);
    if (spec_.norm_bias) Whole(module + ".bias", {spec_.hidden}, TensorRole::kBias);
  }
  void HeadNorm(const std::string& module, int64_t heads, int64_t head_dim) {
    if (spec_.qk_norm == QkNorm::kNone || module.empty()) return;
    const int64_t count = spec_.qk_norm == QkNorm::kWhole ? heads : 1;
    Whole(module + ".weight", {count * head_dim}, TensorRole::kNorm);
  }
  void Linear(const std::string& module, int64_t outputs, int64_t inputs, bool bias,
              TensorRole role = TensorRole::kLinear) {
    if (module.empty()) return;
    Whole(module + ".weight", {outputs, inputs}, role);
    if (bias) Whole(module + ".bias", {outputs}, TensorRole::kBias);
  }

  // If `gate` is empty: a plain MLP, or one whose gate and up are fused.
  void GatedMlp(const std::string& gate, const std::string& up, const std::string& down,
                int64_t wide, bool bias) {
    Linear(gate, wide, spec_.hidden, bias);
    Linear(up, wide, spec_.hidden, bias);
    Linear(down, spec_.hidden, wide, bias, TensorRole::kMlpOutput);
  }

  void Experts(int layer) {
    const TensorNames& names = spec_.names;
    const MoeSpec& moe = spec_.moe;
    const int64_t experts = moe.router.experts, wide = moe.intermediate, hidden = spec_.hidden;
    Linear(LayerTensor(names.router, layer), experts, hidden, moe.router.bias);
    Linear(LayerTensor(names.shared_router, layer), 1, hidden, false);
    Whole(LayerTensor(names.router_correction, layer), {experts}, TensorRole::kBias);
    Whole(LayerTensor(names.router_norm, layer), {hidden}, TensorRole::kNorm);
    Whole(LayerTensor(names.router_expert_scale, layer), {experts}, TensorRole::kNorm);
    for (const std::string* norm :
         {&names.expert_norm, &names.expert_post_norm, &names.shared_post_norm})
      Norm(LayerTensor(*norm, layer));
    if (!names.experts_gate_up.empty()) {
      const std::string in = LayerTensor(names.experts_gate_up, layer);
      const std::string down = LayerTensor(names.experts_down, layer);
      if (moe.tensors == ExpertTensors::kConsecutive) {
        Whole(in, {experts, 2 * wide, hidden}, TensorRole::kLinear);
        return Whole(down, {experts, hidden, wide}, TensorRole::kMlpOutput);
      }
      Whole(in, {experts, hidden, 2 * wide}, TensorRole::kLinear);
      if (moe.bias) Whole(in + "_bias", {experts, 2 * wide}, TensorRole::kBias);
      Whole(down, {experts, wide, hidden}, TensorRole::kMlpOutput);
      if (moe.bias) Whole(down + "_bias", {experts, hidden}, TensorRole::kBias);
      return;
    }
    for (int expert = 0; expert < moe.router.experts; ++expert)
      GatedMlp(ExpertTensor(names.expert_gate, layer, expert),
               ExpertTensor(names.expert_up, layer, expert),
               ExpertTensor(names.expert_down, layer, expert), wide, moe.bias);
  }

  void Attention(int layer) {
    const TensorNames& names = spec_.names;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden;
    const HeadShape heads = LayerHeads(spec_, static_cast<size_t>(layer));
    const int64_t q = heads.q(), kv = heads.kv();
    Linear(at(names.q), spec_.attention_gate ? 2 * q : q, hidden, spec_.qkv_bias);
    const LayerSpec& kinds = spec_.layer_specs[static_cast<size_t>(layer)];
    const bool caches = Caches(kinds);
    if (caches) Linear(at(names.k), kv, hidden, spec_.qkv_bias);
    if (caches && !kinds.keys_as_values) Linear(at(names.v), kv, hidden, spec_.qkv_bias);
    Linear(at(names.qkv), q + 2 * kv, hidden, spec_.qkv_bias);
    HeadNorm(at(names.q_norm), heads.heads, heads.head_dim);
    if (caches) HeadNorm(at(names.k_norm), heads.kv_heads, heads.head_dim);
    Linear(at(names.o), hidden, q, spec_.o_bias, TensorRole::kAttentionOutput);
    Whole(at(names.sinks), {spec_.heads}, TensorRole::kBias);
  }

  void Latent(int layer) {
    const TensorNames& names = spec_.names;
    const LatentSpec& latent = spec_.latent;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden, heads = spec_.heads;
    const int64_t q = heads * (latent.nope_dim + latent.rope_dim);
    Linear(at(names.q), q, hidden, false);
    Linear(at(names.q_a), latent.q_rank, hidden, false);
    if (latent.q_rank > 0)
      Whole(at(names.q_a_norm) + ".weight", {latent.q_rank}, TensorRole::kNorm);
    Linear(at(names.q_b), q, latent.q_rank, false);
    Linear(at(names.kv_a), latent.kv_rank + latent.rope_dim, hidden, false);
    Whole(at(names.kv_a_norm) + ".weight", {latent.kv_rank}, TensorRole::kNorm);
    Linear(at(names.kv_b), heads * (latent.nope_dim + latent.value_dim), latent.kv_rank, false);
    Linear(at(names.o), hidden, heads * latent.value_dim, false, TensorRole::kAttentionOutput);
    Index(layer);
  }

  void Index(int layer) {
    const TensorNames& names = spec_.names;
    const IndexSpec& index = spec_.index;
    if (index.heads == 0) return;
    Linear(LayerTensor(names.index_q, layer), int64_t{index.heads} * index.dim, spec_.latent.q_rank,
           false);
    Linear(LayerTensor(names.index_k, layer), index.dim, spec_.hidden, false);
    Linear(LayerTensor(names.index_weights, layer), index.heads, spec_.hidden, false);
    const std::string norm = LayerTensor(names.index_k_norm, layer);
    Whole(norm + ".weight", {index.dim}, TensorRole::kNorm);
    Whole(norm + ".bias", {index.dim}, TensorRole::kBias);
  }

  void DeltaNet(int layer) {
    const TensorNames& names = spec_.names;
    const DeltaSpec& delta = spec_.delta;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden, heads = delta.value_heads;
    const int64_t values = heads * delta.value_dim;
    const int64_t channels = int64_t{2} * delta.key_heads * delta.key_dim + values;
    Linear(at(names.delta_qkv), channels, hidden, false);
    Linear(at(names.delta_z), values, hidden, false);
    Linear(at(names.delta_b), heads, hidden, false);
    Linear(at(names.delta_a), heads, hidden, false);
    Linear(at(names.delta_qkvz), channels + values, hidden, false);
    Linear(at(names.delta_ba), 2 * heads, hidden, false);
    const int64_t keys = int64_t{delta.key_heads} * delta.key_dim;
    Linear(at(names.delta_q), keys, hidden, false);
    Linear(at(names.delta_k), keys, hidden, false);
    Linear(at(names.delta_v), values, hidden, false);
    Linear(at(names.delta_z_down), delta.z_rank, hidden, false);
    Linear(at(names.delta_z_up), values, delta.z_rank, false);
    Linear(at(names.delta_a_down), delta.a_rank, hidden, false);
    Linear(at(names.delta_a_up), delta.decay_per_channel ? keys : heads, delta.a_rank, false);
    const auto convolution = [&](const std::string& module, int64_t count) {
      if (!module.empty())
        Whole(module + ".weight", {count, 1, delta.conv_width}, TensorRole::kLinear);
    };
    convolution(at(names.delta_conv), channels);
    convolution(at(names.delta_conv_q), keys);
    convolution(at(names.delta_conv_k), keys);
    convolution(at(names.delta_conv_v), values);
    if (delta.decay_per_channel)
      Whole(at(names.delta_decay), {1, 1, heads, 1}, TensorRole::kBias);
    else
      Whole(at(names.delta_decay), {heads}, TensorRole::kBias);
    Whole(at(names.delta_dt_bias), {delta.decay_per_channel ? keys : heads}, TensorRole::kBias);
    Whole(at(names.delta_norm) + ".weight", {delta.value_dim}, TensorRole::kNorm);
    Linear(at(names.delta_o), hidden, values, false, TensorRole::kAttentionOutput);
  }

  void ShortConv(int layer) {
    const TensorNames& names = spec_.names;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden;
    Linear(at(names.conv_in), 3 * hidden, hidden, false);
    Whole(at(names.conv) + ".weight", {hidden, 1, spec_.conv.width}, TensorRole::kLinear);
    Linear(at(names.conv_o), hidden, hidden, false, TensorRole::kAttentionOutput);
  }

  void Mamba(int layer) {
    const TensorNames& names = spec_.names;
    const MambaSpec& mamba = spec_.mamba;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden, heads = mamba.heads, inner = mamba.inner();
    const int64_t channels = inner + int64_t{2} * mamba.groups * mamba.state_dim;
    Linear(at(names.mamba_in), inner + channels + heads, hidden, false);
    const std::string conv = at(names.mamba_conv);
    Whole(conv + ".weight", {channels, 1, mamba.conv_width}, TensorRole::kLinear);
    if (mamba.conv_bias) Whole(conv + ".bias", {channels}, TensorRole::kBias);
    Whole(at(names.mamba_decay), {heads}, TensorRole::kBias);
    Whole(at(names.mamba_skip), {heads}, TensorRole::kBias);
    Whole(at(names.mamba_dt_bias), {heads}, TensorRole::kBias);
    if (mamba.norm_runs > 0) Whole(at(names.mamba_norm) + ".weight", {inner}, TensorRole::kNorm);
    Linear(at(names.mamba_o), hidden, inner, false, TensorRole::kAttentionOutput);
  }

  void Mixer(int layer) {
    switch (spec_.layer_specs[static_cast<size_t>(layer)].mixer) {
      case MixerKind::kDeltaNet:
        return DeltaNet(layer);
      case MixerKind::kShortConv:
        return ShortConv(layer);
      case MixerKind::kMamba:
        return Mamba(layer);
      case MixerKind::kNone:
        return;
      case MixerKind::kAttentionAndMamba:
        Mamba(layer);
        [[fallthrough]];
      case MixerKind::kAttention:
        return spec_.latent.kv_rank > 0 ? Latent(layer) : Attention(layer);
    }
  }

  void Layer(int layer) {
    layer_ = layer;
    const TensorNames& names = spec_.names;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const LayerSpec& kinds = spec_.layer_specs[static_cast<size_t>(layer)];
    if (kinds.mixer != MixerKind::kNone) {
      if (kinds.attention_norm) Norm(at(names.attention_norm));
      Mixer(layer);
      Norm(at(names.attention_post_norm));
    }
    if (kinds.mlp != MlpKind::kNone) Mlp(layer, kinds.mlp);
    AltUp(layer);
    LayerInputs(layer);
    Whole(at(names.layer_scale), {1}, TensorRole::kNorm);
    layer_ = -1;
  }

  void Mlp(int layer, MlpKind kind) {
    const TensorNames& names = spec_.names;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden;
    const auto wide = static_cast<int64_t>(MlpWidth(spec_, static_cast<size_t>(layer)));
    Norm(at(names.mlp_norm));
    if (kind == MlpKind::kExperts) {
      Experts(layer);
      Linear(at(names.shared_gate_up), int64_t{2} * spec_.moe.shared_intermediate, hidden, false);
      GatedMlp(at(names.shared_gate), at(names.shared_up), at(names.shared_down),
               spec_.moe.shared_intermediate, false);
    } else {
      Linear(at(names.gate_up), 2 * wide, hidden, spec_.mlp_bias);
      GatedMlp(at(names.gate), at(names.up), at(names.down), wide, spec_.mlp_bias);
    }
    Norm(at(names.mlp_post_norm));
  }

  void LayerInputs(int layer) {
    const int64_t size = spec_.layer_inputs.size, hidden = spec_.hidden;
    if (size == 0) return;
    Linear(LayerTensor(spec_.names.layer_input_gate, layer), size, hidden, false);
    Linear(LayerTensor(spec_.names.layer_input_out, layer), hidden, size, false);
    Norm(LayerTensor(spec_.names.layer_input_post_norm, layer));
  }

  void AltUp(int layer) {
    const TensorNames& names = spec_.names;
    const int64_t streams = spec_.alt_up.streams, hidden = spec_.hidden;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    if (spec_.laurel_rank > 0) {
      Linear(at(names.laurel_left), spec_.laurel_rank, hidden, false);
      Linear(at(names.laurel_right), hidden, spec_.laurel_rank, false);
      Norm(at(names.laurel_norm));
    }
    if (streams == 0) return;
    Linear(at(names.altup_router), streams, hidden, false);
    Norm(at(names.altup_router_norm));
    Linear(at(names.altup_predict), streams * streams, streams, false);
    Linear(at(names.altup_correct), streams, streams, false);
    Whole(at(names.altup_scale), {hidden}, TensorRole::kNorm);
  }

  // The tensors of layers' inputs and residual streams outside of the layers.
  void LayerInputTable() {
    const TensorNames& names = spec_.names;
    const int64_t size = spec_.layer_inputs.size, hidden = spec_.hidden;
    if (size > 0) {
      Whole(names.layer_input_table, {spec_.layer_inputs.vocabulary, spec_.layers * size},
            TensorRole::kEmbedding);
      Linear(names.layer_input_projection, spec_.layers * size, hidden, false);
      Whole(names.layer_input_norm + ".weight", {size}, TensorRole::kNorm);
    }
    for (int stream = 0; stream + 1 < spec_.alt_up.streams; ++stream) {
      Linear(LayerTensor(names.altup_in, stream), hidden, hidden, false);
      Linear(LayerTensor(names.altup_out, stream), hidden, hidden, false);
    }
  }

  void Classifier() {
    const TensorNames& names = spec_.names;
    const ClassifierSpec& classifier = spec_.classifier;
    if (classifier.labels == 0) return;
    Linear(names.classifier_dense, spec_.hidden, spec_.hidden, classifier.dense_bias);
    Norm(names.classifier_norm);
    Linear(names.classifier_out, classifier.labels, spec_.hidden, true);
  }

  std::vector<TensorSpec> Take() { return std::move(list_); }

 private:
  const DecoderSpec& spec_;
  int layer_ = -1;
  std::vector<TensorSpec> list_;
};

}  // namespace

std::vector<TensorSpec> TensorList(const DecoderSpec& spec) {
  Collector collector(spec);
  const int64_t positions = int64_t{spec.max_positions} + spec.position_offset;
  collector.Whole(spec.names.embedding, {spec.vocabulary, spec.hidden}, TensorRole::kEmbedding);
  collector.Whole(spec.names.position_embedding, {positions, spec.hidden}, TensorRole::kEmbedding);
  collector.Whole(spec.names.type_embedding, {spec.token_types, spec.hidden},
                  TensorRole::kEmbedding);
  collector.Norm(spec.names.embedding_norm);
  collector.LayerInputTable();
  for (int layer = 0; layer < spec.layers; ++layer) collector.Layer(layer);
  collector.Norm(spec.names.final_norm);
  if (!spec.tied_head)
    collector.Whole(spec.names.head, {spec.vocabulary, spec.hidden}, TensorRole::kEmbedding);
  collector.Classifier();
  return collector.Take();
}

std::string LayerTensor(std::string_view pattern, int layer) {
  const size_t gap = pattern.find("{}");
  if (gap == std::string_view::npos) return std::string(pattern);
  return StrCat(pattern.substr(0, gap), layer, pattern.substr(gap + 2));
}

std::string ExpertTensor(std::string_view pattern, int layer, int expert) {
  return LayerTensor(LayerTensor(pattern, layer), expert);
}

uint64_t ElementCount(const std::vector<int64_t>& shape) {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

}  // namespace pinion
