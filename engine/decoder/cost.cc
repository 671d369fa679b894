#include "engine/decoder/cost.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "engine/spec/attention_spec.h"
#include "engine/weights/shard.h"
#include "engine/weights/weight_layout.h"
#include "engine/weights/weights.h"

namespace pinion {
namespace {

// The elements of a matrix that one token is multiplied with, without padding. Without a role, the
// matrix is always held in the decoder's dtype.
struct Part {
  std::optional<MatrixRole> role;
  uint64_t elements;
};

std::vector<Part> MlpParts(const DecoderSpec& spec, int layer) {
  const MlpKind kind = spec.layer_specs[static_cast<size_t>(layer)].mlp;
  if (kind == MlpKind::kNone) return {};
  const auto hidden = static_cast<uint64_t>(spec.hidden);
  const uint64_t in = spec.gated ? 2 : 1;
  if (kind == MlpKind::kDense) {
    const uint64_t matrix = hidden * MlpWidth(spec, static_cast<size_t>(layer));
    return {{MatrixRole::kMlpIn, in * matrix}, {MatrixRole::kDown, matrix}};
  }
  const RouterSpec& router = spec.moe.router;
  const uint64_t experts =
      hidden * static_cast<uint64_t>(router.top_k) * static_cast<uint64_t>(spec.moe.intermediate);
  const uint64_t shared = hidden * static_cast<uint64_t>(spec.moe.shared_intermediate);
  return {{std::nullopt, hidden * static_cast<uint64_t>(router.experts)},
          {MatrixRole::kExpertIn, in * experts},
          {MatrixRole::kExpertDown, experts},
          {MatrixRole::kMlpIn, in * shared},
          {MatrixRole::kDown, shared}};
}

// The matrices of latent attention; those between a head's space and the latent's have no role.
std::vector<Part> LatentParts(const DecoderSpec& spec) {
  const LatentSpec& latent = spec.latent;
  const auto size = [](int n) { return static_cast<uint64_t>(n); };
  const uint64_t hidden = size(spec.hidden), heads = size(spec.heads);
  const uint64_t queries = heads * size(latent.nope_dim + latent.rope_dim);
  const uint64_t q_rank = size(latent.q_rank), kv_rank = size(latent.kv_rank);
  const uint64_t projected = (q_rank > 0 ? q_rank : queries) + kv_rank + size(latent.rope_dim);
  return {{MatrixRole::kQkv, hidden * projected},
          {MatrixRole::kQueryUp, q_rank * queries},
          {std::nullopt, heads * kv_rank * size(latent.nope_dim + latent.value_dim)},
          {MatrixRole::kO, heads * size(latent.value_dim) * hidden}};
}

uint64_t IndexElements(const DecoderSpec& spec) {
  const auto size = [](int n) { return static_cast<uint64_t>(n); };
  const uint64_t heads = size(spec.index.heads), dim = size(spec.index.dim);
  return heads * dim * size(spec.latent.q_rank) + (dim + heads) * size(spec.hidden);
}

std::vector<Part> AttentionParts(const DecoderSpec& spec, int layer) {
  const auto hidden = static_cast<uint64_t>(spec.hidden);
  if (spec.latent.kv_rank > 0) {
    std::vector<Part> parts = LatentParts(spec);
    parts.push_back({std::nullopt, IndexElements(spec)});
    return parts;
  }
  const HeadShape heads = LayerHeads(spec, static_cast<size_t>(layer));
  const auto q = static_cast<uint64_t>(heads.q()), kv = static_cast<uint64_t>(heads.kv());
  const uint64_t gates = spec.attention_gate ? q : 0;
  const LayerSpec& kinds = spec.layer_specs[static_cast<size_t>(layer)];
  const uint64_t keys = Caches(kinds) ? kv : 0, values = kinds.keys_as_values ? 0 : keys;
  return {{MatrixRole::kQkv, hidden * (q + gates + keys + values)}, {MatrixRole::kO, q * hidden}};
}

// Elements of the recurrent part's matrices.
uint64_t RecurrentElements(const DecoderSpec& spec, MixerKind mixer) {
  const auto hidden = static_cast<uint64_t>(spec.hidden);
  if (mixer == MixerKind::kDeltaNet) {
    const DeltaColumns columns(spec.delta, static_cast<size_t>(spec.delta.key_heads));
    const uint64_t up = columns.values() * static_cast<uint64_t>(spec.delta.z_rank) +
                        columns.a_count * static_cast<uint64_t>(spec.delta.a_rank);
    return hidden * (columns.count + columns.values()) + up;
  }
  if (mixer == MixerKind::kShortConv) return 4 * hidden * hidden;
  const MambaColumns columns(spec.mamba, static_cast<size_t>(spec.mamba.heads),
                             static_cast<size_t>(spec.mamba.groups));
  return hidden * (columns.count + columns.b);
}

// Of a layer: its input's matrices and its part of their projection; the term beside attention.
// With several streams, a layer's part of the products at the beginning and the end of a step.
uint64_t StreamElements(const DecoderSpec& spec) {
  const auto size = [](int n) { return static_cast<uint64_t>(n); };
  const uint64_t hidden = size(spec.hidden), streams = size(spec.alt_up.streams);
  const uint64_t embedded = streams > 0 ? 2 * (streams - 1) * hidden * hidden : 0;
  return hidden * (3 * size(spec.layer_inputs.size) + 2 * size(spec.laurel_rank) + 2 * streams) +
         embedded / size(spec.layers);
}

std::vector<Part> MixerParts(const DecoderSpec& spec, int layer) {
  const MixerKind mixer = spec.layer_specs[static_cast<size_t>(layer)].mixer;
  std::vector<Part> parts;
  if (Attends(mixer)) parts = AttentionParts(spec, layer);
  if (Recurs(mixer)) parts.push_back({std::nullopt, RecurrentElements(spec, mixer)});
  return parts;
}

size_t ConvWidth(const DecoderSpec& spec) {
  const int width = spec.mamba.heads > 0  ? spec.mamba.conv_width
                    : spec.conv.width > 0 ? spec.conv.width
                                          : spec.delta.conv_width;
  return static_cast<size_t>(width);
}

// Of one recurrent layer for one token, beside products with matrices: the convolution; the state's
// decay and two products with each of its elements (the delta rule's third is with what it holds
// already), and their sum into it.
uint64_t RecurrentFlops(const DecoderSpec& spec) {
  const StateShape shape = StateShape::Of(spec);
  const size_t width = ConvWidth(spec), taps = shape.tail_floats / (width - 1) * width;
  const uint64_t per_element = spec.mamba.heads > 0 ? 5 : 7;
  return 2 * taps + per_element * shape.value_heads * shape.state_floats;
}

// Whether products with the matrix are computed in integers (its weights may be integers even if
// not).
bool InIntegers(const FormatPlan& formats, int layer, MatrixRole role) {
  const IntegerFormat* format = formats.Find(layer, role);
  return format && format->product == IntegerProduct::kInt8;
}

constexpr uint64_t kEverything = uint64_t{1} << 40;  // a window that no sequence fills

// All rows together reach each token once, from the first within reach of the first row.
uint64_t TokensReached(uint64_t first_position, uint64_t rows, const Reach& reach) {
  return first_position + rows - reach.First(first_position);
}

// Summed over the positions below `end`: how many tokens each sees of those up to itself, or as
// many as the window holds.
uint64_t SeenBefore(uint64_t end, uint64_t window) {
  const uint64_t growing = std::min(end, window);
  return growing * (growing + 1) / 2 + (end - growing) * window;
}
uint64_t SeenBefore(uint64_t end, const Reach& reach) {
  const uint64_t window = reach.window > 0 ? static_cast<uint64_t>(reach.window) : kEverything;
  const uint64_t chunk = reach.chunk > 0 ? static_cast<uint64_t>(reach.chunk) : kEverything;
  return end / chunk * SeenBefore(chunk, window) + SeenBefore(end % chunk, window);
}

// Summed over rows. A row that chooses sees as many tokens as a window of that size holds.
uint64_t TokensSeen(uint64_t first_position, uint64_t rows, Reach reach) {
  if (reach.chosen > 0)
    reach.window = reach.window > 0 ? std::min(reach.window, reach.chosen) : reach.chosen;
  return SeenBefore(first_position + rows, reach) - SeenBefore(first_position, reach);
}

// Rows that choose read what they see, each for itself, unless all tokens are fewer.
uint64_t TokensRead(uint64_t first_position, uint64_t rows, const Reach& reach) {
  const uint64_t all = TokensReached(first_position, rows, reach);
  return reach.chosen > 0 ? std::min(all, TokensSeen(first_position, rows, reach)) : all;
}

// Of those before `end` that choose: how many tokens each of them compares.
uint64_t ComparedBefore(uint64_t end, const Reach& reach) {
  const auto chosen = static_cast<uint64_t>(reach.chosen);
  return end > chosen ? (end * (end + 1) - chosen * (chosen + 1)) / 2 : 0;
}

// The same of a whole sequence whose tokens see as many in each direction, their own included.
uint64_t TokensSeenBothWays(uint64_t rows, const Reach& reach) {
  const uint64_t window = static_cast<uint64_t>(reach.ahead) + 1;
  if (window >= rows) return rows * rows;
  return rows * (2 * window - 1) - window * (window - 1);
}

}  // namespace

StepCost& StepCost::operator+=(const StepCost& other) {
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  flops += other.flops;
  int8_ops += other.int8_ops;
  return *this;
}

CostModel::CostModel(const DecoderSpec& spec, const FormatPlan& formats, kernels::KvDtype kv_dtype,
                     const RankShares& shares) {
  const auto hidden = static_cast<uint64_t>(spec.hidden);
  state_bytes_ = StateBytesPerSequence(spec);
  bidirectional_ = spec.bidirectional;
  for (int rank = 0; rank < shares.ranks(); ++rank) {
    const Shard shard = MakeShard(spec, shares, rank);
    const PackedMatrix head = MatrixOf(formats.dtype, spec.has_head() ? shard.vocabulary.size() : 0,
                                       {0, hidden}, formats.Find(-1, MatrixRole::kHead));
    head_bytes_ += head.size_bytes();
    const uint64_t without_experts = ShardWeightBytes(spec, formats, false, shares, rank);
    layer_weight_bytes_ += without_experts - head.size_bytes();
    expert_bytes_ += ShardWeightBytes(spec, formats, true, shares, rank) - without_experts;
    AddAttention(spec, shard, formats.dtype, kv_dtype);
  }
  if (const RouterSpec& router = spec.moe.router; router.experts > 0)
    touched_by_a_token_ = static_cast<double>(router.top_k) / router.experts;
  for (int index = 0; index < spec.layers; ++index) {
    const LayerSpec& layer = spec.layer_specs[static_cast<size_t>(index)];
    const Products products = LayerProducts(spec, formats, index);
    per_row_.flops += products.flops;
    per_row_.int8_ops += products.int8_ops;
    if (Recurs(layer.mixer)) per_row_.flops += RecurrentFlops(spec);
  }
  const uint64_t head = spec.has_head() ? 2 * static_cast<uint64_t>(spec.vocabulary) * hidden : 0;
  (InIntegers(formats, -1, MatrixRole::kHead) ? per_logit_row_.int8_ops : per_logit_row_.flops) =
      head;
}

void CostModel::AddAttention(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                             kernels::KvDtype kv_dtype) {
  for (size_t index = 0; index < spec.layer_specs.size(); ++index) {
    if (!Attends(spec.layer_specs[index].mixer)) continue;
    const KvShape cached = CachedShape(spec, index);
    const HeadShare& heads = shard.Heads(index);
    TokenCost& cost = of_reach_[LayerAttention(spec, index).reach];
    // The least: an encoder's later layers may find their keys and values in the CPU's caches.
    if (!KeepsOneLayer(spec) || AddsToCache(spec, index))
      cost.kv_bytes += heads.kv_heads.size() * cached.TokenBytes(kv_dtype);
    // A product with the key and one with the value.
    cost.flops += 2 * heads.q_heads.size() * (cached.key_dim + cached.value_dim);
    if (heads.q_heads.size() == 0) continue;
    cost.index_bytes += IndexKeyBytes(spec, dtype);
    cost.compare_flops +=
        2 * static_cast<uint64_t>(spec.index.heads) * static_cast<uint64_t>(spec.index.dim);
  }
}

CostModel::Products CostModel::LayerProducts(const DecoderSpec& spec, const FormatPlan& formats,
                                             int layer) {
  Products products;
  std::vector<Part> parts = MixerParts(spec, layer);
  const auto mlp = MlpParts(spec, layer);
  parts.insert(parts.end(), mlp.begin(), mlp.end());
  parts.push_back({std::nullopt, StreamElements(spec)});
  for (const Part& part : parts) {
    const bool integers = part.role && InIntegers(formats, layer, *part.role);
    (integers ? products.int8_ops : products.flops) += 2 * part.elements;
  }
  return products;
}

StepCost CostModel::Weights(bool with_head) const {
  StepCost cost;
  cost.weight_bytes = layer_weight_bytes_ + (with_head ? head_bytes_ : 0);
  return cost;
}

StepCost CostModel::ExpectedExperts(size_t rows) const {
  const double missed = std::pow(1 - touched_by_a_token_, static_cast<double>(rows));
  StepCost cost;
  cost.weight_bytes =
      static_cast<uint64_t>(std::llround(static_cast<double>(expert_bytes_) * (1 - missed)));
  return cost;
}

StepCost CostModel::LeastExperts() const { return ExpectedExperts(1); }

StepCost CostModel::Rows(size_t first_position, size_t rows, size_t logit_rows) const {
  StepCost cost;
  cost.kv_bytes = first_position > 0 ? state_bytes_ : 0;
  cost.flops = rows * per_row_.flops + logit_rows * per_logit_row_.flops;
  cost.int8_ops = rows * per_row_.int8_ops + logit_rows * per_logit_row_.int8_ops;
  for (const auto& [reach, token] : of_reach_) {
    if (bidirectional_) {
      cost.kv_bytes += rows * token.kv_bytes;
      cost.flops += TokensSeenBothWays(rows, reach) * token.flops;
      continue;
    }
    cost.kv_bytes += TokensRead(first_position, rows, reach) * token.kv_bytes;
    cost.flops += TokensSeen(first_position, rows, reach) * token.flops;
    if (reach.chosen == 0 || !reach.Chooses(first_position + rows - 1)) continue;
    const uint64_t compared =
        ComparedBefore(first_position + rows, reach) - ComparedBefore(first_position, reach);
    cost.kv_bytes += TokensReached(first_position, rows, reach) * token.index_bytes;
    cost.flops += compared * token.compare_flops;
  }
  return cost;
}

}  // namespace pinion
