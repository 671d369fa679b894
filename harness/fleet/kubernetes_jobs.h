#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/fleet/node_sweep.h"

namespace pinion::harness {

// A node's pod.
struct SweepPod {
  std::string image = "pinion";
  int cpus = 0;        // whole ones
  std::string memory;  // as Kubernetes spells it: "64Gi"
};

// A Job for each node's sweep, as YAML. Pods are Guaranteed (requests equal limits, whole CPUs), so
// that a kubelet with the static CPU manager gives each CPUs of its own; no two share a node. The
// claim "pinion-sweeps", which all of them can write, holds the nodes' folders: a pod that is
// started again continues its sweep. A model that is a path or in the Hugging Face cache is mounted
// from the claim "pinion-models".
//
// Errors (kUsage): no CPUs or memory given, or memory that Kubernetes would not take.
Result<std::string> JobsText(const FleetRequest& request, const SweepPod& pod);

}  // namespace pinion::harness
