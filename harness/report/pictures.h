#pragma once

#include <map>
#include <string>

#include "engine/base/result.h"
#include "harness/report/page_parts.h"
#include "harness/results/results.h"

namespace pinion::harness {

// The page's charts as SVG, by name, from the same specifications. `node` renders them with the
// page's own libraries in a child process. Errors: node or the libraries are missing, node failed,
// or it took longer than 60 s.
Result<std::map<std::string, std::string>> RenderPictures(const Results& results,
                                                          const PageParts& parts);

}  // namespace pinion::harness
