#include "harness/artifacts/pod.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/artifacts/yaml.h"
#include "harness/profile/command.h"

namespace pinion::harness {
namespace {

constexpr char kHubCache[] = "/root/.cache/huggingface", kProfileFolder[] = "/etc/pinion";

void AddCpus(const Json* list, std::set<int>& cpus) {
  for (const int cpu : IntegersIn(list)) cpus.insert(cpu);
}

// Hardware threads that come with each of the plan's CPUs: its core's others stay idle, but a
// kubelet that hands out whole cores counts them. 1 if the plan uses them itself.
int ThreadsPerCpu(const Profile& profile) {
  const EngineOptions& options = profile.configuration.options;
  return options.smt == "on" || options.threads_bind == "all" ? 1 : ThreadsPerCore(profile);
}

double PeakBytes(const Profile& profile) {
  for (const Json& one : ItemsOf(&profile.expected))
    if (TextAt(one, "metric") == "peak_rss_bytes")
      return Optional<double>(one, "median", 0).value_or(0);
  return 0;
}

}  // namespace

std::set<int> CpusOfPlan(const Profile& profile) {
  std::set<int> cpus;
  const Json* plan = profile.evidence.Find("plan");
  if (!plan) return cpus;
  for (const Json& rank : ItemsOf(*plan, "ranks")) AddCpus(rank.Find("cpus"), cpus);
  if (!cpus.empty()) AddCpus(plan->Find("frontend_cpus"), cpus);
  return cpus;
}

int ThreadsPerCore(const Profile& profile) {
  const auto cores = Optional<int64_t>(profile.machine, "cores", 0);
  const auto cpus = Optional<int64_t>(profile.machine, "cpus", 0);
  if (!cores || !cpus || *cores < 1) return 1;
  return static_cast<int>(std::clamp<int64_t>(*cpus / *cores, 1, 8));
}

Result<PodSize> PodSizeOf(const Profile& profile) {
  if (ModelFolderOf(profile.configuration.options.model) == "/")
    return Fail(ErrorCode::kFailed,
                StrCat("the model '", profile.configuration.options.model,
                       "' lies in /, where no volume can be mounted; sweep it in a folder of its "
                       "own, by its full path"));
  const auto plan = CpusOfPlan(profile);
  const int whole = ThreadsPerCore(profile);
  int cpus = plan.empty()
                 ? static_cast<int>(profile.cpus.array().size())  // all that the sweep might use
                 : static_cast<int>(plan.size()) * ThreadsPerCpu(profile);
  cpus = (cpus + whole - 1) / whole * whole;
  const double peak = PeakBytes(profile);
  if (cpus < 1 || !(peak > 0))
    return Fail(ErrorCode::kFailed,
                StrCat("the profile does not say ",
                       cpus < 1 ? "on which CPUs" : "with how much memory (peak_rss_bytes)",
                       " it was measured, so no pod can be sized; take one that this version's ",
                       "`pinion sweep` or `pinion report` wrote"));
  return PodSize{cpus, static_cast<int>(std::ceil(peak * 1.25 / std::pow(2, 30)))};
}

bool IsOfHub(const std::string& model) {
  const std::filesystem::path path(model);
  std::error_code error;  // of a name that is too long, say: no folder either
  return !model.starts_with("preset:") && !model.starts_with(".") && !model.ends_with(".gguf") &&
         path.is_relative() && std::distance(path.begin(), path.end()) == 2 &&
         !std::filesystem::is_directory(path, error);
}

std::string ModelFolderOf(const std::string& model) {
  if (model.starts_with("preset:")) return "";
  if (IsOfHub(model)) return kHubCache;
  const auto full = (std::filesystem::path("/") / model).lexically_normal();
  return (model.ends_with(".gguf") ? full.parent_path() : full).string();
}

std::vector<std::string> LaunchWords(const PodOptions& options) {
  // A Service is reached under many names: any is answered.
  std::vector<std::string> words = {"launch",          StrCat(kProfileFolder, "/profile.json"),
                                    "--host",          "0.0.0.0",
                                    "--port",          StrCat(kUsualPort),
                                    "--allowed-hosts", "*"};
  if (!options.served_model_name.empty())
    words.insert(words.end(), {"--served-model-name", options.served_model_name});
  return words;
}

std::string ResourcesText(const PodSize& size) {
  return StrCat("{cpu: \"", size.cpus, "\", memory: ", size.memory_gib, "Gi}");
}

std::vector<std::string> VolumeMounts(const Profile& profile) {
  std::vector<std::string> mounts = {
      StrCat("{name: profile, mountPath: ", kProfileFolder, ", readOnly: true}")};
  const std::string folder = ModelFolderOf(profile.configuration.options.model);
  if (!folder.empty())
    mounts.push_back(StrCat("{name: models, mountPath: ", YamlText(folder), ", readOnly: true}"));
  return mounts;
}

std::vector<std::string> Volumes(const Profile& profile, const std::string& map_name) {
  std::vector<std::string> volumes = {StrCat("{name: profile, configMap: {name: ", map_name, "}}")};
  if (!ModelFolderOf(profile.configuration.options.model).empty())
    volumes.emplace_back(
        "{name: models, persistentVolumeClaim: {claimName: pinion-models, readOnly: true}}");
  return volumes;
}

}  // namespace pinion::harness
