#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/space/definition.h"
#include "harness/store/store.h"
#include "harness/sweep/progress.h"

namespace pinion::harness {

// Some settings change not only the speed of a model but its output: dtype, activations,
// head_dtype, kv_cache_dtype. A candidate whose values of these differ from the baseline's may race
// only if its next-token distributions stay close to the baseline's. `pinion score --compare` in a
// child process, over a fixed text, gives the mean KL divergence per token.
struct DivergenceCheck {
  std::string binary;  // pinion itself
  std::function<bool()> interrupted = [] { return false; };
  double limit_s = 600;  // of one comparison; then it hangs, and counts as one that cannot be made
  const Clock* clock = &kMachineClock;
};

// Makes every feasible row beyond the definition's limit infeasible, and every one that cannot be
// measured, and gives the reason with the number; reports the divergence of every combination of
// these settings. Each combination loads the model twice, one after the other. Runs nothing if no
// row differs. Interruption is an error. Only rows of Pinion's engines are checked: another
// engine's outputs differ by themselves. The baseline is the first row or, if that is of another
// engine, `base`.
Status CheckDivergence(const DivergenceCheck& check, const Definition& definition,
                       const EngineOptions& base, Progress& progress,
                       std::vector<CandidateRow>& rows);

}  // namespace pinion::harness
