#pragma once

#include <cstdint>
#include <functional>

#include "harness/trial/trial.h"

namespace pinion::harness {

// A trial over HTTP, of another engine or of Pinion: as many servers as the request has replicas,
// each started on a free port of 127.0.0.1 with its options and this machine's plan for them,
// asked for its health, loaded (harness/load/spread.h), stopped. The load and its numbers are those
// of a trial without HTTP, so that both can be compared: warm-up, the offline batch, then a closed
// loop at every concurrency. Bytes and counters are summed over the servers; the trial fails when
// one of them ends, and the end of its log goes to standard error. The generator runs on the CPUs
// that the plan leaves free, if there are any; info "generator" has
// {"cpus","cpu_share","late_share"}, of its worst phase: how busy it was itself, and how often it
// was late (LateShare in harness/load/summary.h). `interrupted` is asked while it runs.
Result<TrialResult> RunServerTrial(const TrialRequest& request, int64_t start_ns,
                                   const std::function<bool()>& interrupted);

}  // namespace pinion::harness
