#pragma once

#include "harness/report/text_table.h"
#include "harness/results/results.h"

// The tables below the verdicts: glossary, metrics, time, machine, hygiene, environment.

namespace pinion::harness {

// The effect of each setting by itself, in every objective: the ratios of all pairs of
// configurations that differ in it alone, within their rounds.
TextTable EffectFacts(const Results& results);
TextTable WordFacts(const Results& results);  // the glossary
TextTable MetricFacts(const Results& results);
TextTable TimeFacts(const Results& results);     // the time of each configuration
TextTable LoadFacts(const Results& results);     // windows of the loads, and the generator's use
TextTable MachineFacts(const Results& results);  // machine, budget, model
TextTable HygieneFacts(const Results& results);  // findings of `pinion doctor` at the sweep's start
// Traffic, frequency and energy of each configuration, and which counters are absent.
TextTable CounterFacts(const Results& results);
TextTable EnvironmentFacts(const Results& results);  // engine, compiler, kernel, cgroup, variables

// The findings of `pinion doctor` at the sweep's start; empty if they were not recorded.
const Json::Array& ChecksOf(const Results& results);
// How the names of those on counters begin, and whether one is.
inline constexpr char kCounterCheck[] = "counter_";
bool IsCounter(const Json& check);

}  // namespace pinion::harness
