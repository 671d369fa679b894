#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/generator.h"
#include "harness/load/request_record.h"
#include "harness/stats/estimate.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

// The result of one run at a load.
struct LevelRun {
  size_t good = 0, total = 0;  // requests that met every SLO, of those that were due
};
using SloLevels = std::map<double, LevelRun>;  // runs of a search, by load, pooled

// Whether a request met the limits, its times counted from when it was due in an open loop. One
// that failed did not. nullopt: it was cut off before that was decided.
std::optional<bool> IsGood(const RequestRecord& record, bool open_loop, const Slo& limits);

// All requests of a load; one that is undecided, or was due and never sent, is not good.
LevelRun RunOf(const ServerLoadResult& result, const Slo& limits);

struct SloSearchOptions {
  double start = 1;             // the first load
  double low = 1, high = 4096;  // limits of the loads to try
  bool whole = false;           // loads are whole numbers (concurrency), else real (a rate)
  double attain = 0.9;          // a load passes if this share of the requests is good
  double resolution =
      0.05;         // stop when the failing load is at most this fraction above the passing
  int repeats = 3;  // runs needed at each of the two loads of the answer
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
  // From `pass` to `fail` the share drops by more than half of `attain`.
  bool is_cliff = false;
  bool is_settled = false;  // both have `repeats` runs and lie within `resolution`
  int runs = 0;
};

// Finds the highest load that passes and the lowest that fails. From `start` by doubling or halving
// until both are known; then bisection in the logarithm; then both ends are run again until each
// has `repeats`. Every step decides by the fit: shares of all runs at a load are pooled, and levels
// that break the order (a higher load with a higher share) are pooled with their neighbours (pool
// adjacent violators), so that one lucky or unlucky run does not mislead the search. `run` is
// called with a load; its error ends the search.
Result<SloBoundary> FindSloBoundary(const SloSearchOptions& options,
                                    const std::function<Result<LevelRun>(double load)>& run);

// The load at which the share of good requests falls to `attain`: between the highest level that
// passes and the next, by the monotone fit, linear in the load's logarithm. The highest level if
// all pass; below the lowest if none does, as if every request were good at no load. nullopt
// without levels.
std::optional<double> LoadAttaining(const SloBoundary& boundary, double attain);

// The boundary of levels that were run by the caller, ascending: `load`, `runs`, `good` and `total`
// of each are given. The caller sets `is_settled`.
SloBoundary JudgeLevels(std::vector<SloLevel> levels, double attain);

}  // namespace pinion::harness
