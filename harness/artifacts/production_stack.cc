#include "engine/base/strings.h"
#include "harness/artifacts/makers.h"
#include "harness/artifacts/names.h"
#include "harness/artifacts/yaml.h"
#include "harness/profile/command.h"

namespace pinion::harness {
namespace {

// The chart makes labels of "RELEASE-NAME-engine-service": this leaves seven characters for
// RELEASE.
constexpr size_t kMostOfSpecName = 40;

struct Image {
  std::string repository, tag;
};

// "host:5000/pinion:1" and "pinion@sha256:0123" are repository, ':' and tag, as the chart joins
// them.
Image ImageOf(const std::string& image) {
  const size_t colon = image.rfind(':'), slash = image.rfind('/');
  if (colon == std::string::npos || (slash != std::string::npos && colon < slash))
    return {image, "latest"};
  return {image.substr(0, colon), image.substr(colon + 1)};
}

// Helm takes extraObjects for templates, in which "{{" begins an action: `second` is a brace behind
// another one, in the text's own language.
std::string WithoutActions(const std::string& text, const std::string& second) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i)
    plain += i > 0 && text[i] == '{' && text[i - 1] == '{' ? second : std::string(1, text[i]);
  return plain;
}

// The script that the chart starts as `vllm serve MODEL --host ... --port ...`.
std::string Script(const PodOptions& options) {
  std::vector<std::string> words = {"exec", "pinion"};
  for (const std::string& word : LaunchWords(options)) words.push_back(ShellQuote(word));
  return StrCat(
      "#!/bin/sh\n# The profile has the settings: the chart's flags of vLLM are not taken.\n",
      "# The chart names a folder for its downloads.\nunset HF_HOME\n",
      WithoutActions(Join(words, " "), "''{"), "\n");
}

std::string ModelSpec(const Profile& profile, const PodOptions& options, const PodSize& size,
                      const std::string& name) {
  const Image image = ImageOf(options.image);
  std::vector<std::string> mounts = VolumeMounts(profile), volumes = Volumes(profile, name);
  // The chart's containers run the program `vllm`.
  mounts.emplace_back(
      "{name: command, mountPath: /usr/local/bin/vllm, subPath: vllm, readOnly: true}");
  volumes.push_back(StrCat("{name: command, configMap: {name: ", name, ", defaultMode: 0755}}"));
  return StrCat("    - name: ", name, "\n      repository: ", YamlText(image.repository),
                "\n      tag: ", YamlText(image.tag),
                "\n      modelURL: ", YamlText(profile.configuration.options.model),
                "\n      replicaCount: 1\n",
                "      # Equal, and whole CPUs: the pod gets CPUs of its own.\n      requestCPU: ",
                size.cpus, "\n      limitCPU: ", size.cpus, "\n      requestMemory: \"",
                size.memory_gib, "Gi\"\n      limitMemory: \"", size.memory_gib, "Gi\"\n",
                "      # The chart's default is for GPUs.\n      runtimeClassName: \"\"\n",
                "      extraVolumeMounts:\n", Indented(Join(mounts, "\n"), "        - "),
                "      extraVolumes:\n", Indented(Join(volumes, "\n"), "        - "));
}

}  // namespace

Result<std::string> ProductionStackText(const Profile& profile, const PodOptions& options) {
  PINION_ASSIGN(const PodSize size, PodSizeOf(profile));
  const std::string name = ObjectName(profile, kMostOfSpecName);
  const std::string json = WithoutActions(YamlSafeJson(ToJson(profile), 2), "\\u007b");
  return StrCat(
      R"(# helm install RELEASE vllm/vllm-stack -f FILE, with a RELEASE of at most 7 characters
servingEngineSpec:
  # Two pods at a time would need the CPUs and the memory twice.
  strategy: {type: Recreate}
  # Half an hour to load the weights.
  startupProbe:
    initialDelaySeconds: 5
    periodSeconds: 5
    failureThreshold: 360
    httpGet: {path: /health, port: )",
      kUsualPort, "}\n  containerPort: ", kUsualPort, "\n  modelSpec:\n",
      ModelSpec(profile, options, size, name),
      "extraObjects:\n  - apiVersion: v1\n    kind: ConfigMap\n    metadata:\n      name: ", name,
      "\n      labels: ", ObjectLabels(name),
      "\n    data:\n      vllm: ", YamlText(Script(options)), "\n      profile.json: |\n",
      Indented(json, "        "));
}

}  // namespace pinion::harness
