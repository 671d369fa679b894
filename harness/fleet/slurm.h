#pragma once

#include <functional>
#include <iosfwd>

#include "engine/base/result.h"
#include "harness/fleet/node_sweep.h"

namespace pinion::harness {

// The names of the allocation's nodes that this process is in, as many as asked for.
//
// Errors: kUsage if the allocation has fewer, or a program of Slurm is missing.
Result<std::vector<std::string>> NodesOfAllocation(int nodes);

// Runs the nodes' sweeps as job steps of the allocation that this process is in, each on the node
// that request.names says, at the same time, and returns the nodes whose step failed; that
// srun reports none does not tell that the sweep is finished (a node may have gone down). binary:
// the `pinion` that the nodes run, by a path that exists there. A step's output goes to
// NodeFolder/sweep.log; `out` tells of starts and ends. interrupted: asked several times a second;
// once it is true the steps are ended, their trials are kept, and all nodes count as failed.
//
// Errors: kUsage if srun is missing.
Result<std::vector<int>> RunSteps(const FleetRequest& request, const std::string& binary,
                                  const std::function<bool()>& interrupted, std::ostream& out);

// Whether this process is in an allocation.
bool IsInAllocation();

// Becomes salloc, which runs the command line in a new allocation of so many whole nodes. Returns
// only if Slurm is not installed.
Error BecomeAllocation(int nodes, const std::vector<std::string>& words);

}  // namespace pinion::harness
