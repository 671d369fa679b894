#pragma once

#include <vector>

#include "harness/report/results.h"
#include "harness/stats/verdict.h"
#include "harness/store/store.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// One objective's differences to the baseline, round by round, from all trials, with who still was
// in its race. `race`: nullptr where there was none yet. `race_over`: all races were decided, not
// cut off.
VerdictInput InputFor(Objective objective, const Definition& definition,
                      const std::vector<CandidateRow>& candidates,
                      const std::vector<TrialRow>& trials, const ObjectiveRace* race,
                      bool race_over);

// What the protocol decides from trials that are there, nothing else being run.
ProtocolState StateFrom(const SweepMeta& meta, const std::vector<CandidateRow>& candidates,
                        const std::vector<TrialRow>& trials);

// Everything, from what the store holds.
Results Assemble(const SweepMeta& meta, const SweepProgress& progress,
                 const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials);

}  // namespace pinion::harness
