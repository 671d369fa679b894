#pragma once

#include <vector>

#include "harness/results/results.h"
#include "harness/stats/verdict.h"
#include "harness/store/store.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// One objective's differences to the baseline, round by round, from all trials, with each
// candidate's state in the race. `race`: nullptr if there was none yet. `race_over`: all races were
// decided, not cut off.
VerdictInput InputFor(Objective objective, const Definition& definition,
                      const std::vector<CandidateRow>& candidates,
                      const std::vector<TrialRow>& trials, const ObjectiveRace* race,
                      bool race_over);

// Repeats the protocol's decisions on stored trials, without running anything.
ProtocolState StateFrom(const SweepMeta& meta, const std::vector<CandidateRow>& candidates,
                        const std::vector<TrialRow>& trials);

// The results, from the contents of a store.
Results Assemble(const SweepMeta& meta, const SweepProgress& progress,
                 const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials);

}  // namespace pinion::harness
