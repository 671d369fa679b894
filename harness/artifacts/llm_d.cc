#include "engine/base/strings.h"
#include "engine/run/settings.h"
#include "harness/artifacts/makers.h"
#include "harness/artifacts/names.h"
#include "harness/artifacts/yaml.h"

namespace pinion::harness {
namespace {

// Without the variables of vLLM that a guide sets for its own model: they would beat the profile.
std::string CommandText() {
  std::vector<std::string> words = {"env"};
  for (const SettingRow& row : SettingRows())
    if (std::string(row.environment).starts_with("VLLM_"))
      words.insert(words.end(), {"-u", row.environment});
  words.emplace_back("pinion");
  return Join(words, ", ");
}

}  // namespace

Result<std::string> LlmDText(const Profile& profile, const PodOptions& options) {
  PINION_ASSIGN(const PodSize size, PodSizeOf(profile));
  const std::string name = ObjectName(profile), resources = ResourcesText(size);
  std::vector<std::string> words = LaunchWords(options);
  for (std::string& word : words) word = YamlText(word);
  const std::string patch = StrCat(
      R"(apiVersion: apps/v1
kind: Deployment
metadata: {name: decode}
spec:
  template:
    spec:
      containers:
        - name: modelserver
          image: )",
      YamlText(options.image),
      "\n          # Without the guide's variables, which would beat the profile.\n",
      "          command: [", CommandText(), "]\n          args: [", Join(words, ", "), "]\n",
      "          # Equal, and whole CPUs: the pod gets CPUs of its own.\n          resources:\n",
      "            requests: ", resources, "\n            limits: ", resources,
      "\n          volumeMounts:\n", Indented(Join(VolumeMounts(profile), "\n"), "            - "),
      "      volumes:\n", Indented(Join(Volumes(profile, name), "\n"), "        - "));
  return StrCat(
      R"(# A component for kustomize: it makes the model server of a guide of llm-d one of this profile. In a
# folder of your own, kustomization.yaml names a guide's overlay and the folder of this file:
#   resources: [LLM-D/guides/optimized-baseline/modelserver/cpu/vllm]
#   components: [FOLDER]
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
configMapGenerator:
  - name: )",
      name, "\n    options: {labels: ", ObjectLabels(name), "}\n    literals:\n      - ",
      YamlText("profile.json=" + YamlSafeJson(ToJson(profile), -1)),
      "\npatches:\n  - target: {group: apps, version: v1, kind: Deployment, name: .*decode}\n",
      "    patch: |\n", Indented(std::string(Trim(patch)), "      "));
}

}  // namespace pinion::harness
