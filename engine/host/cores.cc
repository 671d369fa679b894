#include "engine/host/cores.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "engine/base/check.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using Group = std::vector<Core>;

// The units that a division tries to keep whole, coarsest first.
enum class Level { kNode, kL3, kCore };

int KeyOf(const Core& core, Level level) {
  return level == Level::kNode ? core.node : level == Level::kL3 ? core.l3 : core.core;
}

std::vector<Group> GroupBy(const std::vector<Core>& cores, Level level) {
  std::vector<Group> groups;
  for (const Core& core : cores) {
    if (groups.empty() || KeyOf(groups.back().front(), level) != KeyOf(core, level))
      groups.emplace_back();
    groups.back().push_back(core);
  }
  return groups;
}

// For at least as many groups as parts: cuts between groups only, each cut as near to an even share
// of the cores as possible while every part keeps a group.
std::vector<Group> MergeGroups(const std::vector<Group>& groups, size_t parts) {
  size_t total = 0;
  for (const Group& group : groups) total += group.size();
  std::vector<Group> merged(parts);
  size_t next = 0, taken = 0;
  for (size_t part = 0; part < parts; ++part) {
    const size_t last = groups.size() - (parts - part - 1);  // leaves one for each later part
    // Twice the distance from the even share, to stay in whole numbers.
    const auto distance = [&](size_t cores) {
      const size_t have = cores * parts, want = total * (part + 1);
      return have > want ? have - want : want - have;
    };
    do {
      merged[part].insert(merged[part].end(), groups[next].begin(), groups[next].end());
      taken += groups[next++].size();
    } while (next < last && distance(taken + groups[next].size()) < distance(taken));
    if (part + 1 < parts) continue;
    for (; next < groups.size(); ++next)
      merged[part].insert(merged[part].end(), groups[next].begin(), groups[next].end());
  }
  return merged;
}

// For fewer groups than parts: gives each part to the group that then has the most cores per part.
// A group of very few cores may get none.
std::vector<size_t> PartsPerGroup(const std::vector<Group>& groups, size_t parts) {
  std::vector<size_t> count(groups.size(), 0);
  for (size_t part = 0; part < parts; ++part) {
    size_t best = 0;
    for (size_t g = 1; g < groups.size(); ++g)
      if (groups[g].size() * (count[best] + 1) > groups[best].size() * (count[g] + 1)) best = g;
    ++count[best];
  }
  return count;
}

std::vector<Group> Divide(const std::vector<Core>& cores, size_t parts, Level level) {
  const std::vector<Group> groups = GroupBy(cores, level);
  if (groups.size() >= parts) return MergeGroups(groups, parts);
  CHECK(level != Level::kCore) << parts << " parts of " << cores.size() << " cores";
  const std::vector<size_t> count = PartsPerGroup(groups, parts);
  std::vector<Group> divided;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (count[g] == 0) continue;
    const Level finer = level == Level::kNode ? Level::kL3 : Level::kCore;
    for (Group& part : Divide(groups[g], count[g], finer)) divided.push_back(std::move(part));
  }
  return divided;
}

}  // namespace

std::vector<Core> AllowedCores(const Machine& machine, const Budget& budget) {
  std::map<int, Core> by_number;
  for (int id : budget.cpus) {
    const Cpu* cpu = machine.Find(id);
    CHECK(cpu) << "cpu " << id << " is in the budget but not in the machine";
    by_number.try_emplace(cpu->core, Core{cpu->node, cpu->l3, cpu->core, {}, cpu->kind})
        .first->second.cpus.push_back(id);
  }
  std::vector<Core> cores;
  for (auto& [number, core] : by_number) {
    std::sort(core.cpus.begin(), core.cpus.end(),
              [&](int a, int b) { return machine.Find(a)->sibling < machine.Find(b)->sibling; });
    cores.push_back(std::move(core));
  }
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::tie(a.node, a.l3, a.cpus[0]) < std::tie(b.node, b.l3, b.cpus[0]);
  });
  return cores;
}

ChosenCores WithoutEfficiencyCores(const Machine& machine, std::vector<Core> cores, size_t least) {
  const auto is_large = [&](const Core& core) {
    return machine.kinds.empty() || !machine.kinds[static_cast<size_t>(core.kind)].is_efficiency;
  };
  const auto large = static_cast<size_t>(std::count_if(cores.begin(), cores.end(), is_large));
  if (large == 0 || large < least) return {std::move(cores), {}};
  ChosenCores chosen;
  for (Core& core : cores)
    (is_large(core) ? chosen.computing : chosen.left_out).push_back(std::move(core));
  return chosen;
}

std::string DescribeKinds(const Machine& machine, const std::vector<int>& cpus) {
  if (machine.kinds.empty()) return "";
  std::map<int, std::vector<int>> of_kind;
  for (const int id : cpus) of_kind[machine.Find(id)->kind].push_back(id);
  if (of_kind.size() < 2) return "";
  std::vector<std::string> parts;
  for (auto at = of_kind.rbegin(); at != of_kind.rend(); ++at)
    parts.push_back(StrCat("cpu ", FormatCpuList(at->second), parts.empty() ? " are " : " ",
                           machine.kinds[static_cast<size_t>(at->first)].name));
  return StrCat(Join(parts, ", "), " cores");
}

std::string WarningOfKinds(const Machine& machine, const std::vector<int>& cpus) {
  const auto small = [&](int id) {
    return !machine.kinds.empty() &&
           machine.kinds[static_cast<size_t>(machine.Find(id)->kind)].is_efficiency;
  };
  const auto count = static_cast<size_t>(std::count_if(cpus.begin(), cpus.end(), small));
  if (count == 0 || count == cpus.size()) return "";
  return StrCat(DescribeKinds(machine, cpus),
                ": all wait for the slowest at the end of every step; auto leaves those out");
}

std::vector<std::vector<Core>> DivideCores(const std::vector<Core>& cores, size_t parts) {
  CHECK(parts >= 1 && parts <= cores.size()) << parts << " of " << cores.size();
  return Divide(cores, parts, Level::kNode);
}

std::vector<int> GroupsOfCpus(const Machine& machine, const std::vector<int>& cpus) {
  constexpr size_t kMost = 8;
  std::vector<int> runs;  // how many CPUs in a row share a cache
  std::set<int> caches;
  int last = -1;
  for (const int cpu : cpus) {
    const int l3 = machine.Find(cpu)->l3;
    if (runs.empty() || l3 != last) runs.push_back(0);
    ++runs.back();
    caches.insert(last = l3);
  }
  if (runs.size() > caches.size()) runs = {static_cast<int>(cpus.size())};
  std::vector<int> groups;
  for (const int run : runs) {
    const auto threads = static_cast<size_t>(run);
    const size_t parts = (threads + kMost - 1) / kMost;
    for (size_t part = 0; part < parts; ++part)
      groups.push_back(static_cast<int>(threads * (part + 1) / parts - threads * part / parts));
  }
  return groups;
}

std::vector<int> NodesOfCpus(const Machine& machine, const std::vector<int>& cpus) {
  std::set<int> nodes;
  for (int cpu : cpus) nodes.insert(machine.Find(cpu)->node);
  return {nodes.begin(), nodes.end()};
}

}  // namespace pinion
