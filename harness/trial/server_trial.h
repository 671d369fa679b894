#pragma once

#include <cstdint>
#include <functional>

#include "harness/trial/trial.h"

namespace pinion::harness {

// A trial of another engine: started on a free port of 127.0.0.1 as the request's options and this
// machine's plan for them say, asked for its health, loaded over HTTP, stopped. The load and its
// numbers are those of a trial of ours, so that both can be compared: warm-up, the offline batch,
// then a closed loop at every concurrency. The generator runs on the CPUs that the plan leaves
// over, where there are any; info "generator" has {"cpus","cpu_share","late_share"}, of its worst
// phase: how busy it was itself, and how often it was late (LateShare in harness/load/summary.h).
// `interrupted` is asked while it runs.
Result<TrialResult> RunServerTrial(const TrialRequest& request, int64_t start_ns,
                                   const std::function<bool()>& interrupted);

}  // namespace pinion::harness
