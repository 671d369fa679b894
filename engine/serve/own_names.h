#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace pinion {

// The host name and the addresses of this machine's interfaces, as they are now. Asks no name
// server: that may take as long as it likes.
Result<std::vector<std::string>> OwnNames();

}  // namespace pinion
