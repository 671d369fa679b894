#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/exec/executor.h"

namespace pinion {

// One model, computed by several processes. The leader sends every step to the others before its
// own ranks compute their part of it, and an order to unload the model when it is destroyed. `own`:
// this process's part, with its KV cache allocated; its ranks exchange terms through `world`.
std::unique_ptr<Executor> LeadExecutor(std::unique_ptr<Executor> own, Communicator& world);

// In the others: computes what the leader sends, until it unloads the model.
void FollowExecutor(Executor& own, Communicator& world);

}  // namespace pinion
