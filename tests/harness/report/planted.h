#pragma once

#include <string>

#include "harness/results/results.h"

namespace pinion::harness {

// Results of a sweep with known outcomes: the defaults, a winner for throughput, one dropped, one
// that failed with a log, one infeasible and one pending. `hostile` is part of every text that a
// model, a machine or a candidate can contain.
Results PlantedResults(const std::string& hostile = "");

// The same, but the third configuration is the second one again, by turns faster and slower, and
// slower by 1 % in the median.
Results CloseResults();

// `count` configurations, all measured, in one objective.
Results ManyResults(int count);
// Nothing could be measured.
Results FailedResults();
// Nothing is better than the defaults.
Results NoDifferenceResults();
Results LongNamesResults();  // names of 60 letters, without a place to break them
// The defaults are clearly better, by another amount in each objective.
Results DefaultsBestResults();
// The same, with a small gain in the second objective and no difference in the third.
Results MixedResults();
// Two rounds of six are done.
Results MidwayResults();
// The defaults alone.
Results SingleResult();

}  // namespace pinion::harness
