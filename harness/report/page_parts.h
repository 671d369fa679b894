#pragma once

#include <map>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// Everything that makes a page besides the results, as text read from one folder.
struct PageParts {
  std::string folder;
  std::string page;                   // template.html, below head.html
  std::string comparison;             // comparison.html, of two sweeps, below the same
  std::string styles;                 // page.css
  std::string behaviour;              // page/*.js, in the order of their names
  std::map<std::string, Json> specs;  // charts/NAME.vl.json by NAME: Vega-Lite without data
  std::string libraries;  // the chart libraries' JavaScript; empty in a build without npm
  std::string licence;    // theirs
};

// Reads them from `folder`. Without chart libraries the page has only tables, and says so.
Result<PageParts> ReadPageParts(const std::string& folder);

// The Content-Security-Policy of a page: it loads nothing; a live page may ask the server that it
// came from.
std::string PagePolicy(bool live);

// The folder that holds them: "reports" beside the executable (a build), or ../share/pinion/reports
// (an installation). The error lists the folders it searched and says how to make the parts.
Result<std::string> FindPageParts();

}  // namespace pinion::harness
