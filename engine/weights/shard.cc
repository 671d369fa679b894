#include "engine/weights/shard.h"

#include <algorithm>

#include "engine/spec/attention_spec.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

// In whole packed blocks of outputs, so that no block is computed by two ranks.
Range SplitBlocks(size_t items, const RankShares& shares, int rank,
                  size_t block = kernels::kBlockN) {
  const Range blocks = shares.Of((items + block - 1) / block, rank);
  return {std::min(items, blocks.begin * block), std::min(items, blocks.end * block)};
}

// Of `heads` query heads, which share `kv_heads` KV heads.
HeadShare SplitHeads(size_t heads, size_t kv_heads, const RankShares& shares, int rank) {
  const size_t group = heads / kv_heads;
  HeadShare share;
  if (kv_heads >= static_cast<size_t>(shares.ranks())) {
    share.kv_heads = shares.Of(kv_heads, rank);
    share.q_heads = {share.kv_heads.begin * group, share.kv_heads.end * group};
  } else {
    share.q_heads = shares.Of(heads, rank);
    if (share.q_heads.size() > 0)
      share.kv_heads = {share.q_heads.begin / group, (share.q_heads.end - 1) / group + 1};
  }
  for (size_t kv = share.kv_heads.begin; kv < share.kv_heads.end; ++kv) {
    const size_t begin = std::max(kv * group, share.q_heads.begin);
    const size_t end = std::min((kv + 1) * group, share.q_heads.end);
    // One kernel call takes at most kAttentionRows query heads.
    for (size_t head = begin; head < end; head += kernels::kAttentionRows)
      share.groups.push_back({kv - share.kv_heads.begin, head - share.q_heads.begin,
                              std::min(kernels::kAttentionRows, end - head)});
  }
  return share;
}

// Empty if all layers have the decoder's.
std::vector<HeadShare> SplitHeadsByLayer(const DecoderSpec& spec, const RankShares& shares,
                                         int rank) {
  const bool differ = std::any_of(spec.layer_specs.begin(), spec.layer_specs.end(),
                                  [](const LayerSpec& layer) { return layer.kv_heads > 0; });
  std::vector<HeadShare> by_layer;
  for (size_t layer = 0; differ && layer < spec.layer_specs.size(); ++layer) {
    const HeadShape shape = LayerHeads(spec, layer);
    by_layer.push_back(SplitHeads(static_cast<size_t>(shape.heads),
                                  static_cast<size_t>(shape.kv_heads), shares, rank));
  }
  return by_layer;
}

// Empty if all layers have the decoder's.
std::vector<Range> SplitWidthsByLayer(const DecoderSpec& spec, const RankShares& shares, int rank) {
  const bool differ = std::any_of(spec.layer_specs.begin(), spec.layer_specs.end(),
                                  [](const LayerSpec& layer) { return layer.intermediate > 0; });
  std::vector<Range> by_layer;
  for (size_t layer = 0; differ && layer < spec.layer_specs.size(); ++layer)
    by_layer.push_back(SplitBlocks(MlpWidth(spec, layer), shares, rank));
  return by_layer;
}

}  // namespace

RankShares::RankShares(int ranks)
    : RankShares(std::vector<uint32_t>(static_cast<size_t>(ranks), 1)) {}

RankShares::RankShares(const std::vector<uint32_t>& parts) {
  uint64_t end = 0;
  for (const uint32_t part : parts) ends_.push_back(end += part);
}

Range RankShares::Of(size_t items, int rank) const {
  // To the nearest item, halves down: of 8 heads, 15 CPUs have 4 beside 16, and not 3.
  const uint64_t all = ends_.back();
  const auto cut = [&](size_t ranks) {
    return ranks == 0 ? 0 : (2 * items * ends_[ranks - 1] + all - 1) / (2 * all);
  };
  const auto before = static_cast<size_t>(rank);
  return {cut(before), cut(before + 1)};
}

Shard MakeShard(const DecoderSpec& spec, const RankShares& shares, int rank) {
  Shard shard;
  static_cast<HeadShare&>(shard) =
      SplitHeads(static_cast<size_t>(spec.heads), static_cast<size_t>(spec.kv_heads), shares, rank);
  shard.by_layer = SplitHeadsByLayer(spec, shares, rank);
  shard.delta_heads = shares.Of(static_cast<size_t>(spec.delta.key_heads), rank);
  shard.mamba_heads = shares.Of(static_cast<size_t>(spec.mamba.heads), rank);
  if (const Range heads = shard.mamba_heads; heads.size() > 0) {
    const auto per_group = static_cast<size_t>(spec.mamba.heads_per_group());
    shard.mamba_groups = {heads.begin / per_group, (heads.end - 1) / per_group + 1};
  }
  constexpr size_t kChannels = 8;  // a vector of float32
  const size_t channels = spec.conv.width > 0 ? static_cast<size_t>(spec.hidden) : 0;
  shard.conv_channels = SplitBlocks(channels, shares, rank, kChannels);
  shard.intermediate = SplitBlocks(static_cast<size_t>(spec.intermediate), shares, rank);
  shard.intermediate_by_layer = SplitWidthsByLayer(spec, shares, rank);
  shard.expert_intermediate = SplitBlocks(static_cast<size_t>(spec.moe.intermediate), shares, rank);
  shard.shared_intermediate =
      SplitBlocks(static_cast<size_t>(spec.moe.shared_intermediate), shares, rank);
  shard.vocabulary = SplitBlocks(static_cast<size_t>(spec.vocabulary), shares, rank);
  return shard;
}

}  // namespace pinion
