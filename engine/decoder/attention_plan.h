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

// One kernel call: some query tokens, the heads of one group, a part of the context.
struct AttentionItem {
  uint32_t slice;  // its block table leads to the context
  uint32_t group;
  uint32_t first_query, queries;  // of AttentionPlan::queries
  uint32_t context_begin, context_end;
  int32_t part;  // slot of its partial result; -1: the only part of consecutive rows, no merge
  uint32_t step_queries;  // as many as `queries`, and those of other parts of the step
  bool operator==(const AttentionItem&) const = default;
};

// The place of a query token's partial result: the slot, and the token within the slot's item.
struct PartSource {
  uint32_t part, token;
  bool operator==(const PartSource&) const = default;
};

// Rows whose results are merged from the partial results [first_source, first_source + sources) of
// AttentionPlan::sources: `rows` consecutive rows from `row` on, and as many tokens from each
// source on.
struct AttentionJoin {
  uint32_t group, row, rows, first_source, sources;
  bool operator==(const AttentionJoin&) const = default;
};

// How one rank's attention of a step is cut into pieces of work in the layers that share it.
// Threads take items one by one, the longest first.
struct AttentionPlan {
  std::vector<QueryToken> queries;
  std::vector<AttentionItem> items;
  std::vector<AttentionJoin> joins;  // empty if no context was cut or shared
  std::vector<PartSource> sources;
  size_t parts = 0;
  // Tokens that sequences need not read because they are read together with another sequence:
  // summed over sequences, for one KV head.
  size_t shared_tokens = 0;

  // Decoding sequences whose block tables begin with the same blocks (hits of a prefix cache)
  // attend to these together. A context is cut only if it would be too large a share of the work to
  // keep `threads` busy (few sequences, or one much longer than the others). Cuts lie on block
  // boundaries. Blocks that no token of an item sees are left out; an item's tokens are of one
  // chunk. Tokens that choose what they see (Reach::Chooses) are left out. If the batch is a part
  // of a step, the whole step decides all that: the parts' plans together are the same for any
  // number of parts, but for shared blocks, which each part reads for its own tokens.
  //
  // `tables`: of the layers that share the plan (KvPlace); blocks are the same if all of them
  // agree.
  void Build(const StepBatch& batch, const HeadShare& heads, size_t threads, size_t block_tokens,
             const Reach& reach = {}, std::span<const size_t> tables = kFirstTable) {
    Lay(batch, heads, threads, block_tokens, reach, tables);
    Expand(0, 1);
  }

  // The same in two parts, so that several threads can do the second one: first all but the items,
  // joins and sources, whose number is known then; then each of `pieces` equal pieces of these.
  void Lay(const StepBatch& batch, const HeadShare& heads, size_t threads, size_t block_tokens,
           const Reach& reach = {}, std::span<const size_t> tables = kFirstTable);
  void Expand(size_t piece, size_t pieces);

  static constexpr size_t kFirstTable[] = {0};

  // The plan of head groups with as many query heads, which are all cut alike: of any one of them,
  // with parts and sources numbered from 0.
  struct Alike {
    uint32_t q_heads = 0;
    std::vector<uint32_t> groups;
    std::vector<AttentionItem> items;
    std::vector<size_t> places;  // of each item's first copy in AttentionPlan::items; none: in turn
    std::vector<AttentionJoin> joins;
    std::vector<PartSource> sources;
    uint32_t parts = 0;
    // Where those of its first group begin in the whole plan; the next group's follow.
    size_t first_join = 0, first_source = 0, first_part = 0;
  };

 private:
  void PlaceItems();

  std::vector<Alike> alike_;
};

// What decides how a layer's attention is cut.
struct AttendingLayer {
  size_t layer;  // of the model
  Reach reach;
  const HeadShare* heads;
  size_t table = 0;
};

// The plans of a step: layers with the same reach and groups of heads share one.
class AttentionPlans {
 public:
  // layers: all that attend, ascending; their heads outlive this. Once, before Build.
  void Share(std::span<const AttendingLayer> layers);
  void Build(const StepBatch& batch, size_t threads, size_t block_tokens);
  // The same in parts, for several threads: Lay for each of kinds(), then Expand for each of
  // `pieces` pieces.
  size_t kinds() const { return kinds_.size(); }
  void Lay(size_t kind, const StepBatch& batch, size_t threads, size_t block_tokens);
  void Expand(size_t piece, size_t pieces);

  const AttentionPlan& of_layer(size_t layer) const { return plans_[plan_of_layer_.at(layer)]; }
  size_t parts() const;  // the most that a plan has

 private:
  // Layers that share a plan.
  struct Kind {
    AttendingLayer first;
    std::vector<size_t> tables;
  };
  std::vector<Kind> kinds_;            // in the order of their first layers
  std::vector<AttentionPlan> plans_;   // of each
  std::vector<size_t> plan_of_layer_;  // of the model; 0 if it does not attend
};

}  // namespace pinion
