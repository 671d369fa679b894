#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/report/charts.h"
#include "harness/report/html.h"
#include "harness/report/results.h"

namespace pinion::harness {

// report.html: verdict and launch commands first, then every candidate, charts, method, machine.
// One text that needs no network; `folder` is where the profiles lie.
Result<std::string> ReportPage(const Results& results, const std::string& folder,
                               const PageParts& parts);

// Its sections, each made of `results` alone.
Html VerdictCards(const Results& results);
Html LaunchSection(const Results& results, const std::string& folder);
Html CandidateTable(const Results& results);
Html FailureTable(const Results& results);  // infeasible, failed and never measured; may be empty
Html MethodSection(const Results& results);
Html MachineSection(const Results& results);
Html ReproduceSection(const Results& results);

}  // namespace pinion::harness
