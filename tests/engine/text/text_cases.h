#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace pinion {

inline std::vector<int32_t> ReadIds(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.array()) ids.push_back(static_cast<int32_t>(id.integer()));
  return ids;
}

}  // namespace pinion
