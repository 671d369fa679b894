#include "engine/weights/shard.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace pinion {
namespace {

Range SplitEvenly(size_t items, int ranks, int rank) {
  const auto n = static_cast<size_t>(ranks), r = static_cast<size_t>(rank);
  return {items * r / n, items * (r + 1) / n};
}

// In whole packed blocks of outputs, so that no block is computed by two ranks.
Range SplitBlocks(size_t items, int ranks, int rank, size_t block = kernels::kBlockN) {
  const Range blocks = SplitEvenly((items + block - 1) / block, ranks, rank);
  return {std::min(items, blocks.begin * block), std::min(items, blocks.end * block)};
}

}  // namespace

Shard MakeShard(const DecoderSpec& spec, int ranks, int rank) {
  const auto heads = static_cast<size_t>(spec.heads), kv_heads = static_cast<size_t>(spec.kv_heads);
  const size_t group = heads / kv_heads;
  Shard shard;
  if (kv_heads >= static_cast<size_t>(ranks)) {
    shard.kv_heads = SplitEvenly(kv_heads, ranks, rank);
    shard.q_heads = {shard.kv_heads.begin * group, shard.kv_heads.end * group};
  } else {
    shard.q_heads = SplitEvenly(heads, ranks, rank);
    if (shard.q_heads.size() > 0)
      shard.kv_heads = {shard.q_heads.begin / group, (shard.q_heads.end - 1) / group + 1};
  }
  for (size_t kv = shard.kv_heads.begin; kv < shard.kv_heads.end; ++kv) {
    const size_t begin = std::max(kv * group, shard.q_heads.begin);
    const size_t end = std::min((kv + 1) * group, shard.q_heads.end);
    // One kernel call takes at most kAttentionRows query heads.
    for (size_t head = begin; head < end; head += kernels::kAttentionRows)
      shard.groups.push_back({kv - shard.kv_heads.begin, head - shard.q_heads.begin,
                              std::min(kernels::kAttentionRows, end - head)});
  }
  shard.delta_heads = SplitEvenly(static_cast<size_t>(spec.delta.key_heads), ranks, rank);
  shard.mamba_heads = SplitEvenly(static_cast<size_t>(spec.mamba.heads), ranks, rank);
  if (const Range heads = shard.mamba_heads; heads.size() > 0) {
    const auto per_group = static_cast<size_t>(spec.mamba.heads_per_group());
    shard.mamba_groups = {heads.begin / per_group, (heads.end - 1) / per_group + 1};
  }
  constexpr size_t kChannels = 8;  // a vector of float32
  const size_t channels = spec.conv.width > 0 ? static_cast<size_t>(spec.hidden) : 0;
  shard.conv_channels = SplitBlocks(channels, ranks, rank, kChannels);
  shard.intermediate = SplitBlocks(static_cast<size_t>(spec.intermediate), ranks, rank);
  shard.expert_intermediate = SplitBlocks(static_cast<size_t>(spec.moe.intermediate), ranks, rank);
  shard.shared_intermediate =
      SplitBlocks(static_cast<size_t>(spec.moe.shared_intermediate), ranks, rank);
  shard.vocabulary = SplitBlocks(static_cast<size_t>(spec.vocabulary), ranks, rank);
  return shard;
}

}  // namespace pinion
