#include "harness/artifacts/placement.h"

#include <algorithm>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/artifacts/pod.h"

namespace pinion::harness {
namespace {

std::set<int> CpuSet(const std::string& text) {
  const auto list = ParseCpuList(Trim(text));
  return list ? std::set<int>(list->begin(), list->end()) : std::set<int>();
}

bool Overlaps(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int cpu) { return b.count(cpu) > 0; });
}

std::vector<Placement::Node> NodesOf(const Json& machine, const std::set<int>& used) {
  std::vector<Placement::Node> nodes;
  for (const Json& item : ItemsOf(machine, "nodes")) {
    Placement::Node node;
    node.id = Optional<int>(item, "id", -1).value_or(-1);
    node.cpus = CpuSet(TextAt(item, "cpu_list"));
    node.memory_bytes = Optional<double>(item, "memory_bytes", 0).value_or(0);
    node.is_used = Overlaps(node.cpus, used);
    if (node.id >= 0 && !node.cpus.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Placement::Core> CoresOf(const std::string& text) {
  std::vector<Placement::Core> cores;
  for (const std::string& part : Split(text, '|'))
    if (auto core = CpuSet(part); !core.empty()) cores.push_back(std::move(core));
  return cores;
}

}  // namespace

int Placement::used_nodes() const {
  return static_cast<int>(
      std::count_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.is_used; }));
}

int Placement::used_caches() const {
  return static_cast<int>(std::count_if(caches.begin(), caches.end(), [&](const auto& cores) {
    return std::any_of(cores.begin(), cores.end(),
                       [&](const Core& core) { return Overlaps(core, cpus); });
  }));
}

std::optional<Placement::Core> Placement::IdleCore() const {
  std::optional<Core> idle;
  for (const auto& cores : caches)
    for (const Core& core : cores) {
      if (Overlaps(core, cpus)) continue;
      const bool is_apart = std::none_of(nodes.begin(), nodes.end(), [&](const Node& node) {
        return node.is_used && Overlaps(node.cpus, core);
      });
      if (is_apart) return core;
      if (!idle) idle = core;
    }
  return idle;
}

Placement PlacementOf(const Profile& profile) {
  Placement placement;
  placement.is_pinned = profile.configuration.options.threads_bind != "nobind";
  placement.cpus = CpusOfPlan(profile);
  if (placement.cpus.empty())
    for (const Json& cpu : profile.cpus.array())
      placement.cpus.insert(static_cast<int>(cpu.integer()));
  placement.nodes = NodesOf(profile.machine, placement.cpus);
  for (const Json& domain : ItemsOf(profile.machine, "cores_by_l3"))
    if (domain.is_string()) placement.caches.push_back(CoresOf(domain.string()));
  // Older profiles do not tell the cores; with one hardware thread each, CPUs are cores.
  if (placement.caches.empty() && ThreadsPerCore(profile) == 1)
    for (const Placement::Node& node : placement.nodes) {
      placement.caches.emplace_back();
      for (const int cpu : node.cpus) placement.caches.back().push_back({cpu});
    }
  return placement;
}

}  // namespace pinion::harness
