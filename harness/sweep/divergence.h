#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/store/store.h"
#include "harness/sweep/progress.h"

namespace pinion::harness {

// Some settings change what a model computes and not only how fast: dtype, activations, head_dtype,
// kv_cache_dtype. A candidate that has others of these than the base may race only if its
// next-token distributions stay close to the base's: `pinion score --compare` in a child process,
// over a text of ours, gives the mean KL divergence per token.
struct DivergenceLimit {
  double nats = 0;     // per token
  std::string binary;  // pinion itself
  std::function<bool()> interrupted = [] { return false; };
};

// Makes every feasible row that diverges further infeasible, with the number as the reason, or with
// why it could not be measured; says of every combination of those settings what was found. Each
// loads the model twice, one after the other. Nothing is run where no row has others.
// Interruption is an error.
Status HoldToBase(const DivergenceLimit& limit, const EngineOptions& base, Progress& progress,
                  std::vector<CandidateRow>& rows);

}  // namespace pinion::harness
