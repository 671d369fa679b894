#pragma once

#include <functional>
#include <iosfwd>

#include "engine/base/result.h"
#include "harness/fleet/node_sweep.h"

namespace pinion::harness {

// Runs the nodes' sweeps as job steps of the allocation that this process is in, one on each of its
// nodes, at the same time, and returns the nodes whose sweep failed. binary: the `pinion` that the
// nodes run, by a path that exists there. A step's output goes to NodeFolder/sweep.log; `out` tells
// of starts and ends. interrupted: asked several times a second; once it is true the steps are
// ended, what they measured is kept, and all nodes count as failed.
//
// Errors: kUsage if the allocation has fewer nodes than asked for, or a program of Slurm is
// missing.
Result<std::vector<int>> RunSteps(const FleetRequest& request, const std::string& binary,
                                  const std::function<bool()>& interrupted, std::ostream& out);

// Whether this process is in an allocation.
bool IsInAllocation();

// Becomes salloc, which runs the command line in a new allocation of so many whole nodes. Returns
// only if Slurm is not installed.
Error BecomeAllocation(int nodes, const std::vector<std::string>& words);

}  // namespace pinion::harness
