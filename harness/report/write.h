#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/results/results.h"

namespace pinion::harness {

// Writes results.json, results.csv, report.md, report.html, charts/ (pictures for report.md, if
// node can draw them) and profiles/ into `folder`, from the results so far; existing files are
// replaced whole.
Status WriteOutputs(const Results& results, const std::string& folder);

// A single output as text: "html", "md" (without pictures), "json" or "csv"; any other format is a
// usage error that lists these.
Result<std::string> ReportText(const Results& results, const std::string& folder,
                               const std::string& format);

}  // namespace pinion::harness
