#include "engine/base/version.h"

namespace pinion {

const char* Version() { return PINION_VERSION; }

}  // namespace pinion
