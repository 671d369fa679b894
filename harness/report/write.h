#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/report/results.h"

namespace pinion::harness {

// Writes results.json, results.csv, report.md, report.html and profiles/ into `folder`, from
// whatever is known so far; files that are there are replaced whole.
Status WriteOutputs(const Results& results, const std::string& folder);

}  // namespace pinion::harness
