#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// A file of settings as Python's json module writes it, of at most kMaxSettingsBytes: numbers that
// JSON does not know (Infinity, -Infinity, NaN) become objects {"__float__": "Infinity"}, the form
// of transformers 5.
Result<Json> ParseConfigFile(const std::string& path);

}  // namespace pinion
