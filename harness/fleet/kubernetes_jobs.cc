#include "harness/fleet/kubernetes_jobs.h"

#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "harness/artifacts/names.h"
#include "harness/artifacts/pod.h"
#include "harness/artifacts/yaml.h"

namespace pinion::harness {
namespace {

constexpr char kSweeps[] = "/sweeps";
constexpr char kDefinition[] = "/etc/pinion/definition.json";

// Kubernetes's quantities: a whole number and a binary or decimal unit.
bool IsQuantity(const std::string& memory) {
  const size_t digits = memory.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos) return false;
  const std::string unit = memory.substr(digits);
  for (const char* known : {"Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"})
    if (unit == known) return true;
  return false;
}

// The last part of a folder as part of an object's name: two sweeps in one namespace differ in it.
std::string NamePart(const std::string& folder) {
  constexpr size_t kMost = 40;  // of the 63 characters of a name
  const std::string part = Slug(folder.substr(folder.rfind('/') + 1), kMost);
  return part.empty() ? "pinion-sweep" : "pinion-sweep-" + part;
}

Status CheckPod(const SweepPod& pod) {
  if (pod.cpus < 1)
    return Fail(ErrorCode::kUsage,
                "--launcher k8s needs the whole CPUs of a pod: --node-cpus, such as 32");
  if (!IsQuantity(pod.memory))
    return Fail(ErrorCode::kUsage,
                StrCat("--launcher k8s needs the memory of a pod, --node-memory, such as 64Gi",
                       pod.memory.empty() ? "" : StrCat("; not '", pod.memory, "'")));
  return {};
}

std::string JobText(const FleetRequest& request, const SweepPod& pod, int node) {
  std::vector<std::string> words = NodeArguments(request, node);
  if (!request.definition.empty()) words.insert(words.end(), {"--def", kDefinition});
  for (std::string& word : words) word = YamlText(word);
  const std::string folder = ModelFolderOf(request.model);
  const std::string resources = StrCat("{cpu: \"", pod.cpus, "\", memory: ", pod.memory, "}");
  std::string text = StrCat(R"(apiVersion: batch/v1
kind: Job
metadata:
  name: )",
                            NamePart(request.out), "-", node, R"(
  labels: {app: pinion-sweep}
spec:
  # A pod that was evicted, or whose node failed, is started again and continues.
  backoffLimit: 6
  template:
    metadata:
      labels: {app: pinion-sweep}
    spec:
      restartPolicy: OnFailure
      # Sweeps disturb each other: one on each node.
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {app: pinion-sweep}
      containers:
        - name: pinion
          image: )",
                            YamlText(pod.image), "\n          args: [", Join(words, ", "), R"(]
          # By which it knows whether it is still on the machine that it began on.
          env:
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
          # Equal, and whole CPUs: a kubelet with --cpu-manager-policy=static gives the pod CPUs of
          # its own.
          resources:
            requests: )",
                            resources, "\n            limits: ", resources, R"(
          # The store exists once the model was found and the sweep was planned.
          startupProbe:
            exec: {command: [test, -s, )",
                            YamlText(NodeFolder(request, node) + "/results.db"), R"(]}
            periodSeconds: 10
            failureThreshold: 180
          volumeMounts:
            - {name: sweeps, mountPath: )",
                            kSweeps, R"(}
            - {name: shm, mountPath: /dev/shm}
)");
  if (!request.definition.empty())
    text += "            - {name: definition, mountPath: /etc/pinion, readOnly: true}\n";
  if (!folder.empty())
    text +=
        StrCat("            - {name: models, mountPath: ", YamlText(folder), ", readOnly: true}\n");
  text += R"(      volumes:
        # The claim is yours; all nodes must be able to write it.
        - name: sweeps
          persistentVolumeClaim: {claimName: pinion-sweeps}
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: 1Gi}
)";
  if (!request.definition.empty())
    text += StrCat(
        "        - name: definition\n          configMap: {name: ", NamePart(request.out), "}\n");
  if (!folder.empty())
    text +=
        "        # The claim is yours; it holds the model's folder.\n        - name: models\n"
        "          persistentVolumeClaim: {claimName: pinion-models, readOnly: true}\n";
  return text;
}

}  // namespace

Result<std::string> JobsText(const FleetRequest& asked, const SweepPod& pod) {
  PINION_TRY(CheckPod(pod));
  FleetRequest request = asked;
  while (request.out.size() > 1 && request.out.back() == '/') request.out.pop_back();
  request.out = StrCat(kSweeps, "/", request.out.substr(request.out.rfind('/') + 1));
  std::string text =
      StrCat("# kubectl apply -f FILE; then, where the claim pinion-sweeps is at ", kSweeps,
             ":\n#   pinion report --out ", request.out, " --gather ", request.out, "/node-*\n");
  if (!request.definition.empty())
    text += StrCat("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ", NamePart(request.out),
                   "\ndata:\n", "  definition.json: ", YamlText(request.definition), "\n---\n");
  for (int node = 0; node < request.nodes; ++node)
    text += StrCat(node == 0 ? "" : "---\n", JobText(request, pod, node));
  return text;
}

}  // namespace pinion::harness
