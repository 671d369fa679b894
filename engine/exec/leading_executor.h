#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/exec/executor.h"

namespace pinion {

// A model that several processes compute. The leader's executor tells the others every step before
// its own ranks compute their part of it, and to unload the model when it is destroyed. `own`: this
// process's part, whose ranks exchange their terms through `world`, and which has its KV cache.
std::unique_ptr<Executor> LeadExecutor(std::unique_ptr<Executor> own, Communicator& world);

// In the others: computes what the leader tells, until it unloads the model.
void FollowExecutor(Executor& own, Communicator& world);

}  // namespace pinion
