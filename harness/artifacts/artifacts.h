#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "harness/artifacts/pod.h"

// The registry of artifacts: one row a file that is made from a profile. `launch --emit`, the
// folder that a report writes beside a profile, and the report's list are made from it.

namespace pinion::harness {

struct Artifact {
  const char* kind;  // of `launch --emit`
  const char* file;  // in the profile's folder; "": a recipe's, which depends on the model
  const char* what;  // completes the name of its file in lists, and its kind in help
  Result<std::string> (*text)(const Profile& profile, const PodOptions& options);
};

const std::vector<Artifact>& Artifacts();
const Artifact* FindArtifact(std::string_view kind);
std::vector<std::string> ArtifactKinds();

// An artifact of a profile, with the name of its file, or why it cannot be made.
struct MadeArtifact {
  const Artifact* artifact = nullptr;
  std::string file;
  Result<std::string> text;
};
std::vector<MadeArtifact> MakeArtifacts(const Profile& profile, const PodOptions& options = {});

}  // namespace pinion::harness
