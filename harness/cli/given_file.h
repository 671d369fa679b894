#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// The JSON of a file that a flag names. Errors (kUsage) name the file: it cannot be read, or holds
// no JSON.
Result<Json> ReadGivenJson(const std::string& path);

// The folder of a sweep that the user named, either by itself or by its results.db. Errors
// (kUsage): it is another file.
Result<std::string> GivenSweep(const std::string& path);

}  // namespace pinion::harness
