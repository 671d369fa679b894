#pragma once

#include <functional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/results/results.h"

// Views of a running sweep's results. The code that starts the sweep hands them in, so that this
// room needs to know no report.

namespace pinion::harness {

// For browsers. Called on the server's thread and on the sweep's, never at the same time as the
// results change.
struct PageViews {
  std::function<Result<std::string>(const Results&)> page;  // HTML that follows GET /events
  std::function<Result<std::string>(const Results&)> json;  // results.json
  std::function<Json(const Results&)> update;               // an object with the page's data
};

// For a terminal of `width` columns: at most `height` lines of plain text, each line ended.
using TableView = std::function<std::string(const Results&, size_t width, size_t height)>;

}  // namespace pinion::harness
