#pragma once

#include <functional>
#include <string>

#include "engine/base/result.h"
#include "harness/space/expand.h"
#include "harness/sweep/progress.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// What to sweep, in full, from what was asked for; nothing is run or written.
Result<SweepMeta> DescribeSweep(const Definition& definition, const EngineOptions& base,
                                const Host& host, const std::string& command_line);

struct SweepRequest {
  std::string folder;
  bool resume = false;  // go on with the sweep in `folder`; otherwise it must hold none
  SweepMeta meta;       // as asked for; on a resume it must be the stored one (CheckSame)
  std::string binary;   // pinion itself: trials are its children
  std::function<bool()> interrupted = [] { return false; };
};

// Runs rounds until all are done, the budget is spent or it is interrupted. Every trial is stored
// before the next one starts. Failing candidates are rows; errors are the baseline that has never
// run failing again (HasFailed), or the folder, its database or the machine refusing.
Result<SweepEnd> RunSweep(const SweepRequest& request, Progress& progress);

// The stored definition and base, for a resume that repeats neither.
Result<SweepMeta> StoredSweep(const std::string& folder);

}  // namespace pinion::harness
