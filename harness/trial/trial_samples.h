#pragma once

#include <cstddef>
#include <vector>

#include "harness/counters/counters.h"
#include "harness/engines/server_counters.h"
#include "harness/stats/load_level.h"
#include "harness/stats/serving.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// Turns the observations of a trial's loads into its samples.

// Stores the hardware counters of the measured load as info "counters", and those that metrics
// exist for as samples; with energy, also "joules_per_token".
void AddCounters(const std::vector<CounterReading>& readings, size_t output_tokens,
                 TrialResult& result);

// Adds the server's counts of a load.
void AddCounted(const ServerCounters& counted, LoadLevel level, TrialResult& result);

// Times of a loop's requests: medians, and those quantiles that so many requests support; their
// distribution as info.
void AddServing(const ServingSummary& summary, LoadLevel level, bool has_slo, TrialResult& result);

}  // namespace pinion::harness
