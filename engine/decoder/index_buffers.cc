#include "engine/decoder/index_buffers.h"

#include <algorithm>
#include <numeric>

namespace pinion {
namespace {

// Fewer tokens cost more in merging and synchronising than they save (kMinItemTokens of
// attention_items.cc, of wider heads).
constexpr size_t kLeastCutTokens = 128;

}  // namespace

void IndexBuffers::Plan(std::span<const StepBatch> step, const Shard& shard, const Reach& reach,
                        size_t threads, size_t block_tokens, size_t part_floats) {
  rows.clear();
  begins = {0};
  size_t longest = 0;
  for (const StepBatch& part : step) {
    for (uint32_t s = 0; s < part.slices.size(); ++s) {
      const StepBatch::Slice& slice = part.slices[s];
      for (size_t i = 0; i < slice.rows; ++i) {
        const size_t position = slice.first_position + i;
        if (!reach.Chooses(position)) continue;
        rows.push_back(
            {s, static_cast<uint32_t>(slice.first_row + i), static_cast<uint32_t>(position)});
        longest = std::max(longest, position + 1);
      }
    }
    begins.push_back(rows.size());
  }
  if (rows.empty() || shard.groups.empty()) return;
  const size_t at_once = std::min(rows.size(), kIndexRows);
  const auto top_k = static_cast<size_t>(reach.chosen);
  const size_t wanted = (2 * threads * step.front().finer() + at_once - 1) / at_once;
  const size_t most = std::max<size_t>(1, top_k / kLeastCutTokens);
  const size_t first_cuts = threads == 1 ? 1 : std::min(wanted, most);
  cut_tokens = kernels::RoundUp((top_k + first_cuts - 1) / first_cuts, block_tokens);
  cuts = (top_k + cut_tokens - 1) / cut_tokens;
  scores_stride = kernels::RoundUp(longest, kernels::kBlockN);
  const auto grow = [](auto& buffer, size_t size) {
    if (buffer.size() < size) buffer.resize(size);
  };
  grow(scores, kIndexRows * scores_stride);
  grow(chosen, kIndexRows * top_k);
  if (cuts > 1) grow(parts, kIndexRows * cuts * shard.groups.size() * part_floats);
  if (own_blocks.size() < cut_tokens / block_tokens) {
    own_blocks.resize(cut_tokens / block_tokens);
    std::iota(own_blocks.begin(), own_blocks.end(), 0);
  }
}

}  // namespace pinion
