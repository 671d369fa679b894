#include "engine/model/tensor_list.h"

#include "engine/base/strings.h"

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
  void HeadNorm(const std::string& module, int64_t heads) {
    if (spec_.qk_norm == QkNorm::kNone) return;
    const int64_t count = spec_.qk_norm == QkNorm::kWhole ? heads : 1;
    Whole(module + ".weight", {count * spec_.head_dim}, TensorRole::kNorm);
  }
  void Linear(const std::string& module, int64_t outputs, int64_t inputs, bool bias,
              TensorRole role = TensorRole::kLinear) {
    if (module.empty()) return;
    Whole(module + ".weight", {outputs, inputs}, role);
    if (bias) Whole(module + ".bias", {outputs}, TensorRole::kBias);
  }

  void Layer(int layer) {
    layer_ = layer;
    const TensorNames& names = spec_.names;
    const auto at = [&](const std::string& pattern) { return LayerTensor(pattern, layer); };
    const int64_t hidden = spec_.hidden, wide = spec_.intermediate;
    const int64_t q = int64_t{spec_.heads} * spec_.head_dim;
    const int64_t kv = int64_t{spec_.kv_heads} * spec_.head_dim;
    Norm(at(names.attention_norm));
    Linear(at(names.q), q, hidden, spec_.qkv_bias);
    Linear(at(names.k), kv, hidden, spec_.qkv_bias);
    Linear(at(names.v), kv, hidden, spec_.qkv_bias);
    Linear(at(names.qkv), q + 2 * kv, hidden, spec_.qkv_bias);
    HeadNorm(at(names.q_norm), spec_.heads);
    HeadNorm(at(names.k_norm), spec_.kv_heads);
    Linear(at(names.o), hidden, q, spec_.o_bias, TensorRole::kAttentionOutput);
    Norm(at(names.attention_post_norm));
    Norm(at(names.mlp_norm));
    Linear(at(names.gate), wide, hidden, spec_.mlp_bias);
    Linear(at(names.up), wide, hidden, spec_.mlp_bias);
    Linear(at(names.gate_up), 2 * wide, hidden, spec_.mlp_bias);
    Linear(at(names.down), hidden, wide, spec_.mlp_bias, TensorRole::kMlpOutput);
    Norm(at(names.mlp_post_norm));
    layer_ = -1;
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
  for (int layer = 0; layer < spec.layers; ++layer) collector.Layer(layer);
  collector.Norm(spec.names.final_norm);
  if (!spec.tied_head)
    collector.Whole(spec.names.head, {spec.vocabulary, spec.hidden}, TensorRole::kEmbedding);
  return collector.Take();
}

std::string LayerTensor(std::string_view pattern, int layer) {
  const size_t gap = pattern.find("{}");
  if (gap == std::string_view::npos) return std::string(pattern);
  return StrCat(pattern.substr(0, gap), layer, pattern.substr(gap + 2));
}

uint64_t ElementCount(const std::vector<int64_t>& shape) {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

}  // namespace pinion
