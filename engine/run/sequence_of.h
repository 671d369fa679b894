#pragma once

#include <memory>

#include "engine/base/result.h"
#include "engine/run/engine.h"
#include "engine/run/start.h"
#include "engine/sched/sequence.h"

namespace pinion {

// A request as the scheduler takes it, which has yet to check that it can run; its grammar is left
// out. kUsage: the model was started for something else, or tokens, types or parameters are not
// those of its vocabulary.
Result<std::unique_ptr<Sequence>> SequenceOf(Request request, const StartedModel& model);

}  // namespace pinion
