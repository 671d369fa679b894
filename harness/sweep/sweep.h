#pragma once

#include <functional>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "harness/space/expand.h"
#include "harness/sweep/progress.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// Completes the request's description from the definition and the machine; runs and writes nothing.
Result<SweepMeta> DescribeSweep(const Definition& definition, const EngineOptions& base,
                                const Host& host, const std::string& command_line);

struct SweepRequest {
  std::string folder;
  bool resume = false;  // continue the sweep in `folder`; otherwise the folder must not hold one
  SweepMeta meta;       // as requested; on a resume it must equal the stored one (CheckSame)
  std::string binary;   // the pinion program, which runs trials as its children
  std::function<bool()> interrupted = [] { return false; };
  const Clock* clock = &kMachineClock;  // of the seconds that trials take
};

// Runs rounds until all are done, the budget is spent or it is interrupted. Every trial is stored
// before the next one starts. A failing candidate is a row with a reason. Errors: the baseline
// fails without ever having succeeded (HasFailed), or the folder, its database or the machine
// fails.
Result<SweepEnd> RunSweep(const SweepRequest& request, Progress& progress);

// `asked` with the provenance of a sweep that begins now.
SweepMeta WithProvenance(SweepMeta asked);

// The stored definition and base options, for a resume that repeats neither.
Result<SweepMeta> StoredSweep(const std::string& folder);

}  // namespace pinion::harness
