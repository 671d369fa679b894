#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/shard.h"
#include "engine/model/step.h"

namespace pinion {

// One kernel call: some tokens of a slice, the heads of one group, a part of the context.
struct AttentionItem {
  uint32_t slice, group;
  uint32_t token, tokens;  // within the slice
  uint32_t context_begin, context_end;
  int32_t part;  // slot of its partial result; -1: the only part, no merge
};

// Partial results [first_part, first_part + parts) that make up one result.
struct AttentionJoin {
  uint32_t slice, group, token, tokens, first_part, parts;
};

// How one rank's attention of a step is cut into pieces of work; the same for every layer. Threads
// take items one by one, the longest first.
struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<AttentionJoin> joins;  // empty where no context was cut
  size_t parts = 0;

  // Contexts are cut only where the batch has too few items to keep `threads` busy (long contexts
  // of few sequences); cuts lie on block boundaries. Blocks that no token of an item sees because
  // of `window` (0: none) are left out.
  void Build(const StepBatch& batch, const Shard& shard, size_t threads, size_t block_tokens,
             int window = 0);
};

// The plans of a step: layers with the same window share one.
class AttentionPlans {
 public:
  // windows: of each layer.
  void Build(const StepBatch& batch, const Shard& shard, size_t threads, size_t block_tokens,
             const std::vector<int>& windows);

  const AttentionPlan& of_layer(size_t layer) const { return plans_[plan_of_layer_[layer]]; }
  size_t parts() const;  // the most that a plan has

 private:
  std::vector<int> windows_;  // of plans_, in the order of their first layers
  std::vector<AttentionPlan> plans_;
  std::vector<size_t> plan_of_layer_;
};

}  // namespace pinion
