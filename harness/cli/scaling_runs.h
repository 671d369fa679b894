#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/options.h"

namespace pinion::harness {

// `pinion bench --scaling`: benches of more and more threads and ranks, each in a process of its
// own, and prints the figures of each. `options` with one rank; `bench_flags` are passed on to
// every bench. A run that fails is a row with its reason. Errors: kUsage, and that no run has
// succeeded.
Status BenchScaling(const EngineOptions& options, const std::vector<std::string>& bench_flags,
                    bool json);

}  // namespace pinion::harness
