#pragma once

#include <cstddef>
#include <string>

#include "harness/results/results.h"

namespace pinion::harness {

// The results of a sweep so far, for a terminal of `width` columns, in at most `height` lines: a
// row per configuration that is still in the race, best first, with its median in the ranking
// objective as a bar and against the defaults with its interval; then the defaults' drift. Plain
// text, each line ended.
std::string LiveTable(const Results& results, size_t width, size_t height);

}  // namespace pinion::harness
