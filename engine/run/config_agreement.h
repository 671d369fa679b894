#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/model.h"
#include "engine/comm/communicator.h"

// Weights may agree where the file that says how they are used does not: a rope of another base, or
// a norm of another epsilon, computes something else without any error.

namespace pinion {

// The description of how a model's weights are used: config.json or, of a GGUF file, its header and
// the factors of its ropes.
Json ConfigOf(const ModelFiles& files);

// Refuses processes whose configurations (ConfigOf) differ: the error names the first value that
// does, and what it is in the leader and in the first process that differs. The order of keys does
// not count, and neither does how a number is written. file: what to call the file. Collective.
Status AgreeOnConfig(Communicator& world, const char* file, const Json& config);

}  // namespace pinion
