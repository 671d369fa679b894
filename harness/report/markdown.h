#pragma once

#include <string>

#include "harness/report/results.h"

namespace pinion::harness {

// report.md: the verdict, the launch commands and the tables, for a terminal or a pull request.
std::string ReportMarkdown(const Results& results, const std::string& folder);

}  // namespace pinion::harness
