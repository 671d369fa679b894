#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/compare/compare.h"
#include "harness/report/text_table.h"
#include "harness/results/results.h"

// Two sweeps next to each other: changes in the recommendations, the figures and the environment.

namespace pinion::harness {

// `comparison`: CompareAnyway of the stores that the results were read from; it must outlive the
// tables.
std::vector<TextTable> SideTables(const Results& a, const Results& b,
                                  const RunComparison& comparison);
// The comparison in one or two sentences.
std::string SideAnswer(const Results& a, const Results& b, const RunComparison& comparison);

// {"answer","a":{"folder","model","version","commit","started_at"},"b":{},
//  "recommended":[{"objective","a":{"configuration","outcome","ratio_to_default"},"b":{},"same"}],
//  "figures":[{"configuration","metric","unit","concurrency","a":estimate,"b":estimate}],
//  "environment":[{"what","a","b"}],"comparison":ToJson(RunComparison)}
Json SideJson(const Results& a, const Results& b, const RunComparison& comparison);

// `format`: html, md or json. Errors: another format (kUsage), no page template.
Result<std::string> SideText(const Results& a, const Results& b, const RunComparison& comparison,
                             const std::string& format);

}  // namespace pinion::harness
