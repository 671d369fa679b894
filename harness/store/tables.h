#pragma once

#include "engine/base/result.h"
#include "harness/store/sqlite.h"

namespace pinion::harness {

// Makes a sweep's tables in a new file.
void CreateTables(SQLite::Database& database);

// Errors (kUnsupported): another version's tables, with both numbers.
Status CheckTables(SQLite::Database& database);

}  // namespace pinion::harness
