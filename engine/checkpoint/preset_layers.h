#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// A config.json cut down to `layers` of its layers, which follow one another: the first ones or, if
// layers are of several kinds, the first run that has attention to everything and as many others as
// possible, the frequent ones first, in numbers as near as possible to those of the whole. kUsage
// if there are not so many.
Result<Json> ShortenConfig(Json config, const std::string& layers);

}  // namespace pinion
