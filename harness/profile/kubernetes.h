#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/profile/launch.h"

namespace pinion::harness {

struct KubernetesOptions {
  std::string image = "pinion";
  std::string served_model_name;  // empty: as in the profile
};

// A ConfigMap with the profile, a Deployment of one pod that launches it, and a Service, as YAML.
//
// The pod is Guaranteed (requests equal limits, whole CPUs), so that a kubelet with the static CPU
// manager gives it CPUs of its own, within which launch plans again. It gets the hardware threads
// of the cores on which the profile's plan computed (evidence "plan", else the CPUs that the sweep
// might use), and a quarter more memory than the expected peak. A model that is a path or in the
// Hugging Face cache is mounted from the claim "pinion-models".
//
// Errors (kFailed): the profile, which an older version wrote, does not say what it needs.
Result<std::string> KubernetesText(const Profile& profile, const KubernetesOptions& options);

// A scalar of YAML: JSON's strings are YAML's as well.
std::string YamlText(const std::string& text);
// The folder that a model's files are in, in the container; empty if it needs none.
std::string ModelFolderOf(const std::string& model);

// Hardware threads and GiB that the pod gets.
struct PodSize {
  int cpus = 0, memory_gib = 0;
};
Result<PodSize> PodSizeOf(const Profile& profile);

}  // namespace pinion::harness
