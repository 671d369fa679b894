#pragma once

#include <string>

#include "harness/results/results.h"

namespace pinion::harness {

// The end of a sweep's standard output: one line per objective, the report's path, launch commands.
std::string SummaryText(const Results& results, const std::string& folder);

}  // namespace pinion::harness
