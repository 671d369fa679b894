#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {

// What one run at a load came to.
struct LevelRun {
  size_t good = 0, total = 0;  // requests that met every SLO, of those that were due
};

struct SloSearchOptions {
  double start = 1;             // where to begin
  double low = 1, high = 4096;  // no load outside of these is tried
  bool whole = false;           // loads are whole numbers (concurrency), else real (a rate)
  double attain = 0.9;          // a load passes where this part of the requests is good
  double resolution = 0.05;  // stop where the failing load is at most so much above the passing one
  int repeats = 3;           // runs that the two loads of the answer need each
  int max_runs = 24;
};
Status Validate(const SloSearchOptions& options);  // kUsage

// One load that was tried.
struct SloLevel {
  double load = 0;
  int runs = 0;
  size_t good = 0, total = 0;
  double share = 0;     // good / total
  double fitted = 0;    // of the monotone fit through all levels
  Interval interval;    // of the share, exact (Clopper and Pearson), 95 %
  bool passes = false;  // by the fit
};

struct SloBoundary {
  std::vector<SloLevel> levels;  // ascending
  std::optional<size_t> pass;    // the highest level below which all pass
  std::optional<size_t> fail;    // the level above it
  // The share falls by more than half of what was asked for from one to the next: no gentle slope.
  bool is_cliff = false;
  bool is_settled = false;  // both have `repeats` runs and are as near as asked for
  int runs = 0;
};

// Finds the highest load that passes and the lowest that fails. From `start` by doubling or halving
// until both are known; then bisection in the logarithm; then both ends are run again until each
// has `repeats`. Every step decides by the fit: shares of all runs at a load are pooled, and levels
// that break the order (a higher load with a higher share) are pooled with their neighbours (pool
// adjacent violators), so that one lucky or unlucky run does not lead astray. `run` is called with
// a load; its error ends the search.
Result<SloBoundary> FindSloBoundary(const SloSearchOptions& options,
                                    const std::function<Result<LevelRun>(double load)>& run);

// The boundary of levels that were run elsewhere, ascending: `load`, `runs`, `good` and `total` of
// each are given. `is_settled` is for the caller to say.
SloBoundary JudgeLevels(std::vector<SloLevel> levels, double attain);

// Exact interval of a probability from `good` of `total`.
// Source: Clopper and Pearson, Biometrika 26 (1934).
Interval ShareInterval(size_t good, size_t total, double level = 0.95);

}  // namespace pinion::harness
