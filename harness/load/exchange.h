#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/load/generator.h"

namespace pinion::harness {

// Messages between a trial and its generator's process, as JSON objects with the names of the
// members; an infinity is null. Errors of reading (kUsage) name the key.

// Everything but how the server is accessed.
Json ToJson(const LoadedServer& server);
Result<LoadedServer> ReadLoadedServer(const Json& object);
Json ToJson(const LoadPlan& plan);
Result<LoadPlan> ReadLoadPlan(const Json& object);

// Times of CLOCK_MONOTONIC, which all processes share; a request's tokens ("token_us") as whole
// microseconds, the first since it was sent, each next since the one before.
Json ToJson(const RequestRecord& record);
Result<RequestRecord> ReadRequestRecord(const Json& object);
Json ToJson(const ServerLoadResult& result);
Result<ServerLoadResult> ReadServerLoadResult(const Json& object);

}  // namespace pinion::harness
