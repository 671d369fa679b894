#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/artifacts/pod.h"

namespace pinion::harness {

// A ConfigMap with the profile, a Deployment of one pod that launches it, and a Service, as YAML,
// all of them named by ObjectName.
//
// The pod is Guaranteed (requests equal limits, whole CPUs), so that a kubelet with the static CPU
// manager gives it CPUs of its own, within which launch plans again.
//
// Errors (kFailed): those of PodSizeOf.
Result<std::string> KubernetesText(const Profile& profile, const PodOptions& options);

// A ConfigMap of this name with the profile as "profile.json", which ends in a newline.
std::string ProfileMap(const Profile& profile, const std::string& name);

}  // namespace pinion::harness
