#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/decoder/step.h"
#include "engine/spec/attention_spec.h"
#include "engine/weights/shard.h"

namespace pinion {

// One query token: its row in the batch, and the position of the last token that its reach leaves
// it to see (its own, if attention is causal), which may lie beyond its sequence.
struct QueryToken {
  uint32_t row, position;
  bool operator==(const QueryToken&) const = default;
};

// One kernel call: some query tokens, the heads of one group, some of the context.
struct AttentionItem {
  uint32_t slice;  // its block table leads to the context
  uint32_t group;
  uint32_t first_query, queries;  // of AttentionPlan::queries
  uint32_t context_begin, context_end;
  int32_t slot;           // of its partial result; -1: the only item of consecutive rows, no merge
  uint32_t step_queries;  // as many as `queries`, and those of other parts of the step
  uint64_t cost() const { return uint64_t{queries} * (context_end - context_begin); }
  bool operator==(const AttentionItem&) const = default;
};

// The place of a query token's partial result: the slot, and the token within the slot's item.
struct SlotToken {
  uint32_t slot, token;
  bool operator==(const SlotToken&) const = default;
};

// Rows whose results are merged from the partial results [first_source, first_source + sources) of
// AttentionPlan::sources: `rows` consecutive rows from `row` on. Each source holds the first row's;
// those of the next rows follow it.
struct AttentionJoin {
  uint32_t group, row, rows, first_source, sources;
  bool operator==(const AttentionJoin&) const = default;
};

// How one rank's attention of a step, or of a part of it that the stages of a pipeline compute, is
// cut into pieces of work in the layers that share it. Threads take items one by one, the longest
// first.
struct AttentionPlan {
  std::vector<QueryToken> queries;
  std::vector<AttentionItem> items;
  std::vector<AttentionJoin> joins;  // empty if no context was cut or shared
  std::vector<SlotToken> sources;
  size_t slots = 0;
  // Tokens that sequences need not read because they are read together with another sequence:
  // summed over sequences, for one KV head.
  size_t shared_tokens = 0;

  // The plan of head groups with as many query heads, which are all cut alike: of any one of them,
  // with slots and sources numbered from 0.
  struct GroupPlan {
    uint32_t q_heads = 0;
    std::vector<uint32_t> groups;
    std::vector<AttentionItem> items;
    std::vector<size_t> places;  // of each item's first copy in AttentionPlan::items; none: in turn
    std::vector<AttentionJoin> joins;
    std::vector<SlotToken> sources;
    uint32_t slots = 0;
    // Offsets of its first group's parts in the whole plan; the next group's follow.
    size_t first_join = 0, first_source = 0, first_slot = 0;
  };
  std::vector<GroupPlan> group_plans;  // the originals of the items, joins and sources
};

// Properties of a layer that decide how its attention is cut.
struct AttendingLayer {
  size_t layer;  // of the model
  Reach reach;
  const HeadShare* heads;
  size_t table = 0;
};

// The plans of a step, or of each of its parts: layers with the same reach and groups of heads
// share one.
//
// Decoding sequences whose block tables begin with the same blocks (hits of a prefix cache) attend
// to these together; blocks are the same if all tables of the plan's layers agree. A context is cut
// only if it would be too large a share of the work to keep `threads` busy (few sequences, or one
// much longer than the others). Cuts lie on block boundaries. Blocks that no token of an item sees
// are left out; an item's tokens are of one chunk. Tokens that choose what they see
// (Reach::Chooses) are left out. All that is decided once for the step, and each part takes its own
// query tokens: how many parts there are follows from measured times, on which no rounding may
// depend. Shared blocks are read once in each part.
class AttentionPlans {
 public:
  using Parts = std::span<const StepBatch>;

  // layers: all that attend, ascending; their heads outlive this. Once, before Build.
  void Share(std::span<const AttendingLayer> layers);
  // parts: of the step (CutStep), or the step alone.
  void Build(const StepBatch& step, Parts parts, size_t threads, size_t block_tokens);
  // The same in two parts, for several threads: Lay for each of kinds(), which makes all but items,
  // joins and sources, whose number is known then; then Expand for each of `pieces` equal pieces of
  // these.
  size_t kinds() const { return kinds_.size(); }
  void Lay(size_t kind, const StepBatch& step, Parts parts, size_t threads, size_t block_tokens);
  void Expand(size_t piece, size_t pieces);

  // By part of the step.
  std::span<const AttentionPlan> of_layer(size_t layer) const {
    const Kind& kind = kinds_[kind_of_layer_.at(layer)];
    return {kind.plans.data(), kind.parts};
  }
  size_t slots() const;  // the most that a plan has

 private:
  // Layers that share a plan.
  struct Kind {
    AttendingLayer first;
    std::vector<size_t> tables;
    std::vector<AttentionPlan> plans;  // of the step's parts; those behind them keep their memory
    size_t parts = 0;
    std::span<AttentionPlan> current() { return {plans.data(), parts}; }
  };
  std::vector<Kind> kinds_;            // in the order of their first layers
  std::vector<size_t> kind_of_layer_;  // of the model; 0 if it does not attend
};

}  // namespace pinion
