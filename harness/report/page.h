#pragma once

#include <map>
#include <string>

#include "engine/base/result.h"
#include "harness/report/html.h"
#include "harness/report/page_parts.h"
#include "harness/results/results.h"

namespace pinion::harness {

// report.html: verdict and launch commands first, then charts, every candidate, method, machine.
// A single file that needs no network; `folder` holds the profiles. `live`: the page asks the
// server that it came from for updates (GET events), and may connect to nothing else.
Result<std::string> ReportPage(const Results& results, const std::string& folder,
                               const PageParts& parts, bool live = false);

// The parts of the page that depend on the results, as markup, by their names in the template.
std::map<std::string, std::string> PageSections(const Results& results, const std::string& folder,
                                                bool live = false);

// {"charts":[{"name","title","conclusion","spec","values"}]}, for page/*.js to draw.
Json PageCharts(const Results& results, const PageParts& parts);

// The sections, each of which depends on `results` alone.
Html VerdictCards(const Results& results);
Html LaunchSection(const Results& results, const std::string& folder, bool live = false);
Html CandidateTable(const Results& results);
Html FailureTable(const Results& results);  // infeasible, failed and never measured; may be empty
Html MethodSection(const Results& results);
Html TimeSection(const Results& results);  // the time that each configuration took
Html MachineSection(const Results& results);
Html ReproduceSection(const Results& results);

}  // namespace pinion::harness
