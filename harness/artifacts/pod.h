#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/profile/profile.h"

// The pod that launches a profile: its needs of a machine, and its parts as YAML.

namespace pinion::harness {

struct PodOptions {
  std::string image = "pinion";
  std::string served_model_name;  // empty: as in the profile
};

// Hardware threads and GiB that the pod gets.
struct PodSize {
  int cpus = 0, memory_gib = 0;
};

// The hardware threads of the cores on which the profile's plan computed (evidence "plan", else the
// CPUs that the sweep might use), always whole cores, and a quarter more memory than the expected
// peak. Errors (kFailed): the profile, which an older version wrote, lacks its needs.
Result<PodSize> PodSizeOf(const Profile& profile);

// The CPUs of the plan that was measured, front end included; empty if the profile has none, or
// pins nothing.
std::set<int> CpusOfPlan(const Profile& profile);
// Hardware threads of a core of the measured machine; 1 if the profile does not say.
int ThreadsPerCore(const Profile& profile);

// Whether a model is called ORG/NAME, as on the Hugging Face hub, and not a folder here.
bool IsOfHub(const std::string& model);
// The folder that a model's files are in, in the container; empty if it needs none.
std::string ModelFolderOf(const std::string& model);

// The arguments of `pinion` in the pod, where the profile is mounted.
std::vector<std::string> LaunchWords(const PodOptions& options);

// Flow mappings of YAML, items of lists. A model that is a path or in the Hugging Face cache is
// mounted from the claim "pinion-models". `map_name`: of the ConfigMap with "profile.json".
std::string ResourcesText(const PodSize& size);
std::vector<std::string> VolumeMounts(const Profile& profile);
std::vector<std::string> Volumes(const Profile& profile, const std::string& map_name);

}  // namespace pinion::harness
