#pragma once

#include <map>
#include <string>

#include "engine/base/result.h"
#include "harness/results/results.h"

namespace pinion::harness {

// report.md: the verdict, the launch commands and the tables, for a terminal or a pull request.
// `pictures` has the charts as SVG by name (stored as charts/NAME.svg), or the reason for having
// none.
std::string ReportMarkdown(const Results& results, const std::string& folder,
                           const Result<std::map<std::string, std::string>>& pictures);

}  // namespace pinion::harness
