#include "harness/profile/kubernetes.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

constexpr char kHubCache[] = "/root/.cache/huggingface";

// The CPUs of the plan that was measured, front end included; empty if the profile has none.
std::set<int64_t> CpusOfPlan(const Profile& profile) {
  std::set<int64_t> cpus;
  const auto add = [&](const Json* list) {
    if (list && list->is_array())
      for (const Json& cpu : list->array())
        if (cpu.is_int()) cpus.insert(cpu.integer());
  };
  const Json* plan = profile.evidence.is_object() ? profile.evidence.Find("plan") : nullptr;
  const Json* ranks = plan ? plan->Find("ranks") : nullptr;
  if (!ranks || !ranks->is_array()) return cpus;
  for (const Json& rank : ranks->array()) add(rank.Find("cpus"));
  if (!cpus.empty()) add(plan->Find("frontend_cpus"));
  return cpus;
}

// Hardware threads that come with each of the plan's CPUs: its core's others stay idle, but a
// kubelet that hands out whole cores counts them. 1 if the plan uses them itself.
int64_t ThreadsPerCpu(const Profile& profile) {
  const EngineOptions& options = profile.configuration.options;
  const auto cores = Optional<int64_t>(profile.machine, "cores", 0);
  const auto cpus = Optional<int64_t>(profile.machine, "cpus", 0);
  if (options.smt == "on" || options.threads_bind == "all" || !cores || !cpus || *cores < 1)
    return 1;
  return std::max<int64_t>(1, *cpus / *cores);
}

double PeakBytes(const Profile& profile) {
  if (!profile.expected.is_array()) return 0;
  for (const Json& one : profile.expected.array()) {
    const Json* metric = one.is_object() ? one.Find("metric") : nullptr;
    if (metric && *metric == Json("peak_rss_bytes"))
      return Optional<double>(one, "median", 0).value_or(0);
  }
  return 0;
}

std::string Indented(const std::string& text, const std::string& by) {
  std::string indented;
  for (const std::string& line : Split(text, '\n')) indented += StrCat(by, line, "\n");
  return indented;
}

std::string ConfigMap(const Profile& profile) {
  return StrCat("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pinion\ndata:\n",
                "  profile.json: |\n", Indented(ToJson(profile).Dump(2), "    "));
}

std::string Arguments(const KubernetesOptions& options) {
  std::vector<std::string> words = {
      "launch", "/etc/pinion/profile.json", "--host",          "0.0.0.0",
      "--port", StrCat(kUsualPort),         "--allowed-hosts", "*"};
  if (!options.served_model_name.empty()) {
    words.emplace_back("--served-model-name");
    words.push_back(options.served_model_name);
  }
  for (std::string& word : words) word = YamlText(word);
  return Join(words, ", ");
}

std::string Deployment(const Profile& profile, const KubernetesOptions& options,
                       const PodSize& size) {
  const std::string folder = ModelFolderOf(profile.configuration.options.model);
  const std::string resources =
      StrCat("{cpu: \"", size.cpus, "\", memory: ", size.memory_gib, "Gi}");
  std::string text = StrCat(R"(apiVersion: apps/v1
kind: Deployment
metadata:
  name: pinion
  labels: {app: pinion}
spec:
  replicas: 1
  # Two pods at a time would need the CPUs and the memory twice.
  strategy: {type: Recreate}
  selector:
    matchLabels: {app: pinion}
  template:
    metadata:
      labels: {app: pinion}
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
          # Equal, and whole CPUs: a kubelet with --cpu-manager-policy=static gives the pod CPUs of
          # its own, within which launch plans again; its log says what differs from the profile.
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
            - {name: profile, mountPath: /etc/pinion, readOnly: true}
)");
  if (!folder.empty())
    text +=
        StrCat("            - {name: models, mountPath: ", YamlText(folder), ", readOnly: true}\n");
  text += "      volumes:\n        - name: profile\n          configMap: {name: pinion}\n";
  if (!folder.empty())
    text += StrCat("        # The claim is yours; it holds the model's folder.\n",
                   "        - name: models\n          persistentVolumeClaim: ",
                   "{claimName: pinion-models, readOnly: true}\n");
  return text;
}

std::string Service() {
  return StrCat(R"(apiVersion: v1
kind: Service
metadata:
  name: pinion
spec:
  selector: {app: pinion}
  ports:
    - {name: http, port: )",
                kUsualPort, ", targetPort: http}\n");
}

}  // namespace

std::string YamlText(const std::string& text) { return Json(text).Dump(); }

std::string ModelFolderOf(const std::string& model) {
  if (model.starts_with("preset:")) return "";
  const std::filesystem::path path(model);
  const bool is_file = model.ends_with(".gguf");
  // org/name is looked up in the cache of the hub unless there is such a folder.
  const auto parts = std::distance(path.begin(), path.end());
  if (!is_file && path.is_relative() && parts == 2 && !model.starts_with("."))
    return std::filesystem::is_directory(path) ? (std::filesystem::path("/") / path).string()
                                               : kHubCache;
  const auto full = (std::filesystem::path("/") / path).lexically_normal();
  return (is_file ? full.parent_path() : full).string();
}

Result<PodSize> PodSizeOf(const Profile& profile) {
  const auto plan = CpusOfPlan(profile);
  PodSize size;
  size.cpus = plan.empty()
                  ? static_cast<int>(profile.cpus.array().size())  // all that the sweep might use
                  : static_cast<int>(static_cast<int64_t>(plan.size()) * ThreadsPerCpu(profile));
  const double peak = PeakBytes(profile);
  if (size.cpus < 1 || peak <= 0)
    return Fail(ErrorCode::kFailed,
                StrCat("the profile does not say ",
                       size.cpus < 1 ? "on which CPUs" : "with how much memory (peak_rss_bytes)",
                       " it was measured, so no pod can be sized; take one that this version's ",
                       "`pinion sweep` or `pinion report` wrote"));
  size.memory_gib = static_cast<int>(std::ceil(peak * 1.25 / std::pow(2, 30)));
  return size;
}

Result<std::string> KubernetesText(const Profile& profile, const KubernetesOptions& options) {
  PINION_ASSIGN(const PodSize size, PodSizeOf(profile));
  return StrCat("# kubectl apply -f FILE\n", ConfigMap(profile), "---\n",
                Deployment(profile, options, size), "---\n", Service());
}

}  // namespace pinion::harness
