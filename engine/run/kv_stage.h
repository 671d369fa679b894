#pragma once

#include <vector>

#include "engine/base/result.h"
#include "engine/run/capacity.h"
#include "engine/run/stages.h"
#include "engine/run/start.h"

namespace pinion {

// The stage of a start that sizes the cache and allocates it, the same in all processes: of keys
// and values, and of states. Lowers the length of sequences and their number to its size. needs: of
// this process's ranks; available_bytes: for the cache, after loading.
Status MakeKvCache(StartedModel& model, const std::vector<RankNeeds>& needs,
                   uint64_t available_bytes, Stages& stages);

}  // namespace pinion
