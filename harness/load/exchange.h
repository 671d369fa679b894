#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/load/generator.h"

namespace pinion::harness {

// A plan for a generator in another process: everything but its hooks and access.
Json ToJson(const ServerLoadPlan& plan);
// Errors (kUsage) name the key.
Result<ServerLoadPlan> ReadServerLoadPlan(const Json& object);

// {"start_ns","end_ns",...,"generator":{},"requests":[{"sent_ns","token_us":[],...}]}: times of
// CLOCK_MONOTONIC, which all processes share; a request's tokens as whole microseconds, the first
// since it was sent, each next since the one before.
Json ToJson(const RequestRecord& record);
Result<RequestRecord> ReadRequestRecord(const Json& object);
Json ToJson(const ServerLoadResult& result);
Result<ServerLoadResult> ReadServerLoadResult(const Json& object);

}  // namespace pinion::harness
