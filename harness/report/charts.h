#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/report/results.h"

namespace pinion::harness {

// What a page is made of besides the results: the template, the chart specifications and the chart
// libraries, as texts.
struct PageParts {
  std::string page;       // template.html
  std::string scripts;    // the libraries' JavaScript, in the order they need
  std::string licence;    // theirs
  Json scatter, heatmap;  // Vega-Lite specifications without data
};

// Reads them from `folder`.
Result<PageParts> ReadPageParts(const std::string& folder);

// The folder where they are: "reports" beside the executable (a build), or ../share/pinion/reports
// (an installation). The error says where it looked and what makes them.
Result<std::string> FindPageParts();

// One point per measured candidate and concurrency: seconds per request and tokens/s.
Json ScatterPoints(const Results& results);

// Per binding and number of threads the best throughput relative to the defaults [percent].
Json HeatCells(const Results& results);

}  // namespace pinion::harness
