#pragma once

#include <string>

#include "harness/report/results.h"

namespace pinion::harness {

// What a sweep ends with on standard output: one line per objective, where to look, how to launch.
std::string SummaryText(const Results& results, const std::string& folder);

}  // namespace pinion::harness
