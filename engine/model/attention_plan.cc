#include "engine/model/attention_plan.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace pinion {
namespace {

// Below this many tokens a part costs more in merging and synchronising than it saves: 256 tokens
// of one 64-wide bf16 head are 64 KiB, some 2 us of reading.
constexpr size_t kMinPartTokens = 256;

size_t TileTokens(const HeadGroup& group) { return kernels::kAttentionRows / group.q_heads; }

size_t CountTiles(const StepBatch& batch, const Shard& shard) {
  size_t tiles = 0;
  for (const auto& slice : batch.slices)
    for (const HeadGroup& group : shard.groups)
      tiles += (slice.rows + TileTokens(group) - 1) / TileTokens(group);
  return tiles;
}

}  // namespace

void AttentionPlan::Build(const StepBatch& batch, const Shard& shard, size_t threads,
                          size_t block_tokens) {
  items.clear();
  joins.clear();
  parts = 0;
  // Four items a thread even out their differences well enough.
  const size_t tiles = std::max<size_t>(1, CountTiles(batch, shard));
  const size_t wanted_parts = threads == 1 ? 1 : (4 * threads + tiles - 1) / tiles;
  for (uint32_t s = 0; s < batch.slices.size(); ++s) {
    const auto& slice = batch.slices[s];
    for (uint32_t g = 0; g < shard.groups.size(); ++g) {
      const size_t tile = TileTokens(shard.groups[g]);
      for (size_t token = 0; token < slice.rows; token += tile) {
        const size_t tokens = std::min(tile, slice.rows - token);
        const size_t context = slice.first_position + token + tokens;
        const size_t cuts = std::clamp<size_t>(context / kMinPartTokens, 1, wanted_parts);
        const size_t step = kernels::RoundUp((context + cuts - 1) / cuts, block_tokens);
        const auto first_part = static_cast<uint32_t>(parts);
        for (size_t begin = 0; begin < context; begin += step) {
          const bool whole = step >= context;
          items.push_back({s, g, static_cast<uint32_t>(token), static_cast<uint32_t>(tokens),
                           static_cast<uint32_t>(begin),
                           static_cast<uint32_t>(std::min(begin + step, context)),
                           whole ? -1 : static_cast<int32_t>(parts++)});
        }
        if (parts > first_part)
          joins.push_back({s, g, static_cast<uint32_t>(token), static_cast<uint32_t>(tokens),
                           first_part, static_cast<uint32_t>(parts) - first_part});
      }
    }
  }
  const auto cost = [](const AttentionItem& item) {
    return uint64_t{item.tokens} * (item.context_end - item.context_begin);
  };
  std::stable_sort(items.begin(), items.end(), [&](const AttentionItem& a, const AttentionItem& b) {
    return cost(a) > cost(b);
  });
}

}  // namespace pinion
