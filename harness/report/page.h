#pragma once

#include <map>
#include <string>

#include "engine/base/result.h"
#include "harness/report/html.h"
#include "harness/report/page_parts.h"
#include "harness/report/results.h"

namespace pinion::harness {

// report.html: verdict and launch commands first, then charts, every candidate, method, machine.
// One text that needs no network; `folder` is where the profiles lie. `live`: the page asks the
// server it came from for news (GET events), and may connect to nothing else.
Result<std::string> ReportPage(const Results& results, const std::string& folder,
                               const PageParts& parts, bool live = false);

// What of the page depends on the results, by the names of the template's places, as markup.
std::map<std::string, std::string> PageSections(const Results& results, const std::string& folder);

// {"charts":[{"name","title","conclusion","spec","values"}]}: what page/*.js draws.
Json PageCharts(const Results& results, const PageParts& parts);

// The sections, each made of `results` alone.
Html VerdictCards(const Results& results);
Html LaunchSection(const Results& results, const std::string& folder);
Html CandidateTable(const Results& results);
Html FailureTable(const Results& results);  // infeasible, failed and never measured; may be empty
Html MethodSection(const Results& results);
Html TimeSection(const Results& results);  // where the sweep's time went
Html MachineSection(const Results& results);
Html ReproduceSection(const Results& results);

}  // namespace pinion::harness
