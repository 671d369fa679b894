#include "engine/base/strings.h"
#include "harness/artifacts/makers.h"
#include "harness/artifacts/names.h"
#include "harness/artifacts/yaml.h"
#include "harness/profile/command.h"

namespace pinion::harness {
namespace {

std::string ProfileMap(const Profile& profile, const std::string& name) {
  return StrCat("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ", name,
                "\n  labels: ", ObjectLabels(name), "\ndata:\n  profile.json: |\n",
                Indented(YamlSafeJson(ToJson(profile), 2), "    "));
}

std::string Arguments(const PodOptions& options) {
  std::vector<std::string> words = LaunchWords(options);
  for (std::string& word : words) word = YamlText(word);
  return Join(words, ", ");
}

std::string Deployment(const Profile& profile, const PodOptions& options, const PodSize& size) {
  const std::string name = ObjectName(profile), resources = ResourcesText(size);
  std::string text = StrCat("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: ", name,
                            "\n  labels: ", ObjectLabels(name), R"(
spec:
  replicas: 1
  # Two pods at a time would need the CPUs and the memory twice.
  strategy: {type: Recreate}
  selector:
    matchLabels: )",
                            SelectorLabels(name), R"(
  template:
    metadata:
      labels: )",
                            ObjectLabels(name), R"(
    spec:
      # serve lets running requests finish for up to 30 s.
      terminationGracePeriodSeconds: 40
      containers:
        - name: pinion
          image: )",
                            YamlText(options.image), R"(
          # A Service is reached under many names: any is answered.
          args: [)",
                            Arguments(options), R"(]
          ports:
            - {name: http, containerPort: )",
                            kUsualPort, R"(}
          # Equal, and whole CPUs: a kubelet with the static CPU manager gives the pod CPUs of its
          # own, within which launch plans again; its log says what differs from the profile.
          # Nothing is kept in /dev/shm, so it needs no volume.
          resources:
            requests: )",
                            resources, "\n            limits: ", resources, R"(
          # Half an hour to load the weights.
          startupProbe:
            httpGet: {path: /health, port: http}
            periodSeconds: 5
            failureThreshold: 360
          readinessProbe:
            httpGet: {path: /health, port: http}
            periodSeconds: 5
          volumeMounts:
)");
  for (const std::string& mount : VolumeMounts(profile))
    text += StrCat("            - ", mount, "\n");
  text += "      volumes:\n";
  for (const std::string& volume : Volumes(profile, name))
    text += StrCat("        - ", volume, "\n");
  return text;
}

std::string Service(const std::string& name) {
  return StrCat("apiVersion: v1\nkind: Service\nmetadata:\n  name: ", name,
                "\n  labels: ", ObjectLabels(name), "\nspec:\n  selector: ", SelectorLabels(name),
                "\n  ports:\n    - {name: http, port: ", kUsualPort, ", targetPort: http}\n");
}

}  // namespace

Result<std::string> KubernetesText(const Profile& profile, const PodOptions& options) {
  PINION_ASSIGN(const PodSize size, PodSizeOf(profile));
  const std::string name = ObjectName(profile);
  return StrCat("# kubectl apply -f FILE\n", ProfileMap(profile, name), "---\n",
                Deployment(profile, options, size), "---\n", Service(name));
}

}  // namespace pinion::harness
