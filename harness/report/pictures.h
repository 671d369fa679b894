#pragma once

#include <map>
#include <string>

#include "engine/base/result.h"
#include "harness/report/page_parts.h"
#include "harness/report/results.h"

namespace pinion::harness {

// The page's charts as SVG, by name, from the same specifications: rendered by `node` with the
// page's own libraries, in a child process. Errors say what is missing (node, the libraries) or why
// node failed; it is given 60 s.
Result<std::map<std::string, std::string>> RenderPictures(const Results& results,
                                                          const PageParts& parts);

}  // namespace pinion::harness
