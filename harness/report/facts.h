#pragma once

#include "harness/report/results.h"
#include "harness/report/text_table.h"

// What stands below the verdicts: formulas, time, machine, hygiene, environment.

namespace pinion::harness {

TextTable WordFacts(const Results& results);  // what the report's words mean
TextTable MetricFacts(const Results& results);
TextTable TimeFacts(const Results& results);         // where the sweep's time went
TextTable MachineFacts(const Results& results);      // machine, budget, model
TextTable HygieneFacts(const Results& results);      // what `pinion doctor` found when it began
TextTable EnvironmentFacts(const Results& results);  // engine, compiler, kernel, cgroup, variables

}  // namespace pinion::harness
