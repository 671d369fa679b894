#pragma once

#include "harness/report/results.h"
#include "harness/report/text_table.h"

// The tables below the verdicts: glossary, metrics, time, machine, hygiene, environment.

namespace pinion::harness {

TextTable WordFacts(const Results& results);  // the glossary
TextTable MetricFacts(const Results& results);
TextTable TimeFacts(const Results& results);     // the time of each configuration
TextTable MachineFacts(const Results& results);  // machine, budget, model
TextTable HygieneFacts(const Results& results);  // findings of `pinion doctor` at the sweep's start
TextTable EnvironmentFacts(const Results& results);  // engine, compiler, kernel, cgroup, variables

}  // namespace pinion::harness
