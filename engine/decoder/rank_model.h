#pragma once

#include "engine/decoder/kv_cache.h"
#include "engine/decoder/state_cache.h"
#include "engine/decoder/workspace.h"
#include "engine/weights/weights.h"

namespace pinion {

// One rank of a model: its share of the weights, its keys, values and states, and its buffers. None
// of it points to another rank, so that any rank can be in another process: RankExchange alone
// knows where the others' terms are.
struct RankModel {
  RankWeights weights;
  KvCache cache;      // empty until Decoder::AllocateKv, as the next
  StateCache states;  // of recurrent layers
  Workspace workspace;
};

}  // namespace pinion
