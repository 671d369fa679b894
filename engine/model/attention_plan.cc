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

// What the query tokens of a slice from `token` on see: nothing before `begin`, a block's first.
struct Context {
  size_t begin, end;
  size_t size() const { return end - begin; }
};

Context SeenContext(const StepBatch::Slice& slice, size_t token, size_t tokens, size_t block_tokens,
                    int window) {
  const size_t first = slice.first_position + token;  // with the window's beginning furthest back
  const auto reach = static_cast<size_t>(window);
  const size_t begin = window > 0 && first + 1 > reach ? first + 1 - reach : 0;
  return {begin / block_tokens * block_tokens, first + tokens};
}

}  // namespace

void AttentionPlan::Build(const StepBatch& batch, const Shard& shard, size_t threads,
                          size_t block_tokens, int window) {
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
        const Context context = SeenContext(slice, token, tokens, block_tokens, window);
        const size_t cuts = std::clamp<size_t>(context.size() / kMinPartTokens, 1, wanted_parts);
        const size_t step = kernels::RoundUp((context.size() + cuts - 1) / cuts, block_tokens);
        const auto first_part = static_cast<uint32_t>(parts);
        for (size_t begin = context.begin; begin < context.end; begin += step) {
          const bool whole = step >= context.size();
          items.push_back({s, g, static_cast<uint32_t>(token), static_cast<uint32_t>(tokens),
                           static_cast<uint32_t>(begin),
                           static_cast<uint32_t>(std::min(begin + step, context.end)),
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

void AttentionPlans::Build(const StepBatch& batch, const Shard& shard, size_t threads,
                           size_t block_tokens, const std::vector<int>& windows) {
  windows_.clear();
  plan_of_layer_.clear();
  for (const int window : windows) {
    const auto known = std::find(windows_.begin(), windows_.end(), window);
    plan_of_layer_.push_back(static_cast<size_t>(known - windows_.begin()));
    if (known == windows_.end()) windows_.push_back(window);
  }
  plans_.resize(windows_.size());
  for (size_t i = 0; i < plans_.size(); ++i)
    plans_[i].Build(batch, shard, threads, block_tokens, windows_[i]);
}

size_t AttentionPlans::parts() const {
  size_t most = 0;
  for (const AttentionPlan& plan : plans_) most = std::max(most, plan.parts);
  return most;
}

}  // namespace pinion
