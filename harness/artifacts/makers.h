#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/artifacts/pod.h"

// The makers of artifacts.h, one a file. Each gives a whole file, which ends in a newline.

namespace pinion::harness {

// A ConfigMap with the profile, a Deployment of one pod that launches it, and a Service, all of
// them named by ObjectName. The pod is Guaranteed (requests equal limits, whole CPUs), so that a
// kubelet with the static CPU manager gives it CPUs of its own, within which launch plans again.
// Errors (kFailed): those of PodSizeOf.
Result<std::string> KubernetesText(const Profile& profile, const PodOptions& options);

// A KubeletConfiguration (kubelet.config.k8s.io/v1beta1) with the static policies that a node needs
// for the profile to run as it was measured, and no others: CPUs of its own if its threads are
// pinned, whole cores if a core has several hardware threads, L3 domains and a NUMA node if its
// plan stayed within some of several. Errors (kFailed): those of PodSizeOf.
Result<std::string> KubeletText(const Profile& profile, const PodOptions& options);

// values.yaml for the chart of vLLM's production stack: one servingEngineSpec.modelSpec[] with
// Pinion's image, and a ConfigMap with the profile and with the script that its containers start as
// `vllm`, which launches the profile. Errors (kFailed): those of PodSizeOf.
Result<std::string> ProductionStackText(const Profile& profile, const PodOptions& options);

// kustomization.yaml of a component that makes the Deployment "...decode" of llm-d's guides one
// that launches the profile. Errors (kFailed): those of PodSizeOf.
Result<std::string> LlmDText(const Profile& profile, const PodOptions& options);

// A recipe for vLLM on CPUs with the nearest settings, as its collection has them in
// models/ORG/REPO.yaml. Errors (kFailed): the model is not called ORG/REPO, or the profile, which
// an older version wrote, does not tell its parameters.
Result<std::string> RecipeText(const Profile& profile, const PodOptions& options);
// "models/ORG/REPO.yaml". Error (kFailed): the model is not called so.
Result<std::string> RecipeFile(const Profile& profile);

// A dashboard for Grafana: values of /metrics, and constant lines of those that the profile
// expects.
Result<std::string> DashboardText(const Profile& profile, const PodOptions& options);

}  // namespace pinion::harness
