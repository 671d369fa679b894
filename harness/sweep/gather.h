#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/store/store.h"
#include "harness/sweep/protocol.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// Joins the stores of sweeps with one definition that several nodes of one kind ran, each by
// itself, in INTO/results.db; a store there that was gathered before is replaced. A node is a block
// of the experiment: comparisons stay within its rounds, which are numbered one node after the
// other, so that the verdict pools their differences.
//
// Errors: kUsage if there are fewer than two sweeps, if INTO holds a sweep of its own, or if two of
// them differ in model, configuration, definition (the budget, the rounds and the seed may),
// binary, files, environment, candidates, number of CPUs, quota, or kind of machine: the error
// names the first difference with both values.
Status Gather(const std::vector<std::string>& folders, const std::string& into);

// kUsage if Gather would refuse a sweep like `asked` beside the one in `folder`, with any
// candidates: the error names the first difference with both values.
Status CheckOneKind(const std::string& folder, const SweepMeta& stored, const SweepMeta& asked);

// StateFrom for gathered stores: the protocol's decisions on each node, brought together. A
// candidate was dropped if every node dropped it, disqualified if one did.
ProtocolState StateOfNodes(const SweepMeta& meta, const std::vector<CandidateRow>& candidates,
                           const std::vector<TrialRow>& trials);

}  // namespace pinion::harness
