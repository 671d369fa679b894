#include "harness/artifacts/artifacts.h"

#include <utility>

#include "harness/artifacts/makers.h"

namespace pinion::harness {

const std::vector<Artifact>& Artifacts() {
  static const std::vector<Artifact> artifacts = {
      {"k8s", "k8s.yaml", "a ConfigMap, a Deployment and a Service for Kubernetes", KubernetesText},
      {"kubelet", "kubelet.yaml", "the kubelet's policies that a node needs for it", KubeletText},
      {"production-stack", "production-stack.yaml", "values.yaml for vLLM's production stack",
       ProductionStackText},
      {"llm-d", "llm-d/kustomization.yaml", "a component for kustomize that patches llm-d's guides",
       LlmDText},
      {"recipe", "", "a recipe for vLLM with the nearest settings", RecipeText},
      {"grafana", "grafana.json", "a dashboard for Grafana of expected values beside live ones",
       DashboardText},
  };
  return artifacts;
}

const Artifact* FindArtifact(std::string_view kind) {
  for (const Artifact& artifact : Artifacts())
    if (kind == artifact.kind) return &artifact;
  return nullptr;
}

std::vector<std::string> ArtifactKinds() {
  std::vector<std::string> kinds;
  for (const Artifact& artifact : Artifacts()) kinds.emplace_back(artifact.kind);
  return kinds;
}

std::vector<MadeArtifact> MakeArtifacts(const Profile& profile, const PodOptions& options) {
  std::vector<MadeArtifact> made;
  for (const Artifact& artifact : Artifacts()) {
    std::string file = artifact.file;
    Result<std::string> text = artifact.text(profile, options);
    if (file.empty() && text) file = *RecipeFile(profile);  // whose text has the same errors
    made.push_back({&artifact, std::move(file), std::move(text)});
  }
  return made;
}

}  // namespace pinion::harness
