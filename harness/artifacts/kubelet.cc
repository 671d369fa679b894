#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "harness/artifacts/makers.h"
#include "harness/artifacts/placement.h"

namespace pinion::harness {
namespace {

// Of the system and the kubelet, which must keep something; and the threshold below which a kubelet
// evicts pods, unless its configuration has another.
constexpr int kSystemMemoryMib = 1024, kEvictionMib = 100;

// Without FormatCpuList's steps ("0-12:4"), which a kubelet does not know.
std::string PlainCpuList(const std::set<int>& cpus) {
  std::vector<std::string> texts;
  for (const int cpu : cpus) texts.push_back(StrCat(cpu));
  return Join(texts, ",");
}

class Kubelet {
 public:
  Kubelet(const Profile& profile, const PodSize& size)
      : placement_(PlacementOf(profile)), size_(size), threads_per_core_(ThreadsPerCore(profile)) {}

  std::string Text() {
    text_ =
        R"(# Settings to add to a node's own: a file *.conf in the folder of the kubelet's
# --config-dir, or lines of /var/lib/kubelet/config.yaml. CPU and memory managers change their
# policies only with the node drained, the kubelet stopped, and cpu_manager_state and
# memory_manager_state in /var/lib/kubelet deleted.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
)";
    if (!placement_.is_pinned)
      return text_ + "# The profile pins no threads: it needs none of the static policies.\n";
    AddCpuManager();
    AddReservedCpus();
    if (placement_.nodes.size() > 1) AddNodes();
    return text_;
  }

 private:
  // Only if the plan stayed within some of a node's several domains: there is nothing to prefer
  // otherwise.
  bool NeedsCaches() const {
    return placement_.caches.size() > placement_.nodes.size() &&
           placement_.used_caches() < static_cast<int>(placement_.caches.size());
  }
  bool FitsOneNode() const {
    return std::any_of(placement_.nodes.begin(), placement_.nodes.end(), [&](const auto& node) {
      return size_.cpus <= static_cast<int>(node.cpus.size());
    });
  }
  // Not together with the domains, which a kubelet refuses.
  bool NeedsSpreading() const {
    return placement_.used_nodes() > 1 && !FitsOneNode() && !NeedsCaches();
  }

  void AddCpuManager() {
    text_ += StrCat("# The profile's threads are pinned: the pod gets ", size_.cpus,
                    " CPUs of its own.\ncpuManagerPolicy: static\n");
    std::string options;
    if (threads_per_core_ > 1)
      options +=
          "  # No other pod on the second hardware threads of its cores.\n"
          "  full-pcpus-only: \"true\"\n";
    if (NeedsCaches())
      options +=
          StrCat("  # The plan was on ", placement_.used_caches(), " of ", placement_.caches.size(),
                 " L3 domains. Kubernetes 1.34; 1.32 and 1.33 with the feature gate\n"
                 "  # CPUManagerPolicyAlphaOptions.\n"
                 "  prefer-align-cpus-by-uncorecache: \"true\"\n");
    if (NeedsSpreading())
      options +=
          "  # As many CPUs of each NUMA node, as the plan had. Kubernetes 1.33; before, with the "
          "feature\n  # gate CPUManagerPolicyAlphaOptions.\n"
          "  distribute-cpus-across-numa: \"true\"\n";
    if (!options.empty()) text_ += "cpuManagerPolicyOptions:\n" + options;
  }

  void AddReservedCpus() {
    if (const auto core = placement_.IdleCore()) {
      text_ +=
          StrCat("# The static policy needs CPUs for the system: a core on which the plan did ",
                 "not compute, on the\n# machine that was measured.\nreservedSystemCPUs: \"",
                 PlainCpuList(*core), "\"\n");
      return;
    }
    reserved_ = StrCat("  cpu: \"", threads_per_core_, "\"\n");
    text_ += StrCat(
        "# The static policy needs CPUs for the system. The profile names none that were idle: a ",
        "node needs\n# ", size_.cpus + threads_per_core_,
        " hardware threads for the pod and these.\n");
    if (placement_.nodes.size() < 2 || !KeepsMemory()) AddReserved();
  }

  bool KeepsMemory() const {
    if (placement_.used_nodes() != 1) return false;
    const double gib = std::pow(2, 30);
    return std::any_of(placement_.nodes.begin(), placement_.nodes.end(), [&](const auto& node) {
      return node.is_used && node.memory_bytes > (size_.memory_gib + 1) * gib;
    });
  }

  void AddReserved() { text_ += "systemReserved:\n" + reserved_; }

  void AddNodes() {
    const int used = placement_.used_nodes();
    if (used == 1) {
      text_ += StrCat("# The plan stayed on one of ", placement_.nodes.size(),
                      " NUMA nodes.\ntopologyManagerPolicy: single-numa-node\n");
      if (KeepsMemory()) AddMemoryManager();
    } else if (used > 1 && !FitsOneNode()) {
      text_ += StrCat("# The plan was on ", used, " NUMA nodes, and no one has ", size_.cpus,
                      " CPUs: no more nodes than it takes.\ntopologyManagerPolicy: restricted\n");
    } else if (used > 1) {
      text_ +=
          StrCat("# The plan was on ", used,
                 " NUMA nodes, but its CPUs fit on one: no policy of a kubelet spreads such a ",
                 "pod. If it\n# gets CPUs of one node, `pinion launch` says so in its log.\n");
    }
  }

  // The kubelet refuses to start unless the sum over nodes equals the memory kept from pods.
  void AddMemoryManager() {
    const auto spare = std::find_if(placement_.nodes.begin(), placement_.nodes.end(),
                                    [](const auto& node) { return !node.is_used; });
    reserved_ += StrCat("  memory: ", kSystemMemoryMib, "Mi\n");
    text_ +=
        StrCat("# Memory of that node as well. reservedMemory must be the sum of systemReserved, ",
               "kubeReserved (none\n# here) and evictionHard's memory.available (", kEvictionMib,
               "Mi by default): change it with them.\nmemoryManagerPolicy: Static\n");
    AddReserved();
    text_ += StrCat("reservedMemory:\n  - numaNode: ", spare->id,
                    "\n    limits: {memory: ", kSystemMemoryMib + kEvictionMib, "Mi}\n");
  }

  Placement placement_;
  PodSize size_;
  int threads_per_core_;
  std::string text_, reserved_;  // reserved_: lines of systemReserved
};

}  // namespace

Result<std::string> KubeletText(const Profile& profile, const PodOptions&) {
  PINION_ASSIGN(const PodSize size, PodSizeOf(profile));
  return Kubelet(profile, size).Text();
}

}  // namespace pinion::harness
