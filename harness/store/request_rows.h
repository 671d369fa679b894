#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/result.h"
#include "harness/store/sqlite.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The table `requests`: a row per request of a trial's load, with the time of each of its tokens.

// Within the caller's transaction.
void PutRequests(SQLite::Database& database, int64_t trial,
                 const std::vector<RequestRow>& requests);

// In the order in which they were put; none if the slot has no trial. Errors: times that were not
// packed by PackTimes, or none of a request that was answered.
Result<std::vector<RequestRow>> ReadRequests(SQLite::Database& database, const Slot& slot);

}  // namespace pinion::harness
