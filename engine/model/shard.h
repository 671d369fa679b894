#pragma once

#include <cstddef>
#include <vector>

#include "engine/model/spec.h"
#include "kernels/types.h"

namespace pinion {

struct Range {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

// Query heads of a shard that share one of its KV heads, at most kAttentionRows of them; indices
// count within the shard.
struct HeadGroup {
  size_t kv_head, first_q_head, q_heads;
};

// What one rank holds of a decoder: ranges of the whole model's heads, MLP columns and vocabulary.
// Any range may be empty. Norms, embeddings and routers are not sharded.
struct Shard {
  Range q_heads, kv_heads, intermediate, vocabulary;
  // Columns of every expert: however tokens choose, all ranks have the same to do. With whole
  // experts dealt out, one token's would mostly lie on a few ranks and the others would wait.
  Range expert_intermediate, shared_intermediate;
  std::vector<HeadGroup> groups;  // one per KV head held, or more where it serves very many heads
};

// Cuts `spec` into `ranks` shards. Where there are at least as many KV heads as ranks, whole groups
// of heads go together and no KV is stored twice; with fewer, query heads are dealt out and a KV
// head is replicated on every rank that needs it. MLP columns and vocabulary are dealt in blocks
// of 64.
Shard MakeShard(const DecoderSpec& spec, int ranks, int rank);

}  // namespace pinion
