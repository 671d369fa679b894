#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/load/generator.h"
#include "harness/load/slo_search.h"

namespace pinion::harness {

// The result of a search, with the server and the load that it is for.
struct SloReport {
  LoadedServer server;
  LoadPlan plan;  // each run has its own load and seed
  SloSearchOptions options;
  SloBoundary boundary;
  std::vector<std::string> suspect;  // disturbances of any of the runs
};

// {"unit","attain","pass":{"load","runs","good","total","share","low","high","fitted","passes"},
//  "fail":{...},"is_cliff","is_settled","runs","levels":[...],"suspect":[]}
Json ToJson(const SloReport& report);
std::string Render(const SloReport& report);

}  // namespace pinion::harness
