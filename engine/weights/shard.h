#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/spec/spec.h"
#include "kernels/types.h"

namespace pinion {

struct Range {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

// How much of a model, or of a stage of it, each of its ranks has: as much as every other, or in
// proportion to numbers such as the CPU time of their processes.
class RankShares {
 public:
  RankShares(int ranks);                                    // all have as much
  explicit RankShares(const std::vector<uint32_t>& parts);  // by rank, of their sum; at least 1

  int ranks() const { return static_cast<int>(ends_.size()); }
  // Its own of `items` in a row, perhaps none. Those of all ranks together are all items, in the
  // order of ranks; where one ends and the next begins is rounded to the nearest item.
  Range Of(size_t items, int rank) const;
  bool operator==(const RankShares& other) const = default;

 private:
  std::vector<uint64_t> ends_;  // the sums of the parts of this rank and of those before it
};

// Query heads of a shard that share one of its KV heads, at most kAttentionRows of them; indices
// count within the shard.
struct HeadGroup {
  size_t kv_head, first_q_head, q_heads;
  friend bool operator==(const HeadGroup&, const HeadGroup&) = default;
};

// One rank's part of a layer's heads.
struct HeadShare {
  Range q_heads, kv_heads;
  std::vector<HeadGroup> groups;  // one per KV head held, or more if it serves very many heads
};

// One rank's part of a decoder: ranges of the whole model's heads, MLP columns and vocabulary. Any
// range may be empty. Norms, embeddings and routers are not sharded.
struct Shard : HeadShare {          // the heads are those of layers without heads of their own
  std::vector<HeadShare> by_layer;  // of all layers, if some have heads of their own; else empty
  Range intermediate, vocabulary;
  std::vector<Range> intermediate_by_layer;  // as by_layer, of dense MLPs
  Range delta_heads;    // key heads of Gated DeltaNet, each with its value heads and their state
  Range conv_channels;  // of gated short convolutions
  Range mamba_heads, mamba_groups;  // of Mamba-2; the groups are those of its heads
  // Columns of every expert, so that all ranks have the same work whatever experts tokens choose.
  // If whole experts were distributed, those of one token would mostly be on a few ranks, and the
  // others would wait.
  Range expert_intermediate, shared_intermediate;

  const HeadShare& Heads(size_t layer) const { return by_layer.empty() ? *this : by_layer[layer]; }
  const Range& Intermediate(size_t layer) const {
    return intermediate_by_layer.empty() ? intermediate : intermediate_by_layer[layer];
  }
};

// The place of a process's ranks among all ranks of a model: its first is number `first` of `all`.
// Unset: they are all, and have as much each.
struct RankSpan {
  int first = 0;
  std::optional<RankShares> all = {};
};

// Cuts `spec` into shards. If there are at least as many KV heads as ranks, whole groups of
// heads stay together and no KV is stored twice; with fewer, query heads are distributed and a KV
// head is replicated on every rank that needs it. MLP columns and vocabulary are distributed in
// blocks of 64.
Shard MakeShard(const DecoderSpec& spec, const RankShares& shares, int rank);

}  // namespace pinion
