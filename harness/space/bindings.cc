#include "harness/space/bindings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/strings.h"
#include "engine/host/cores.h"

namespace pinion::harness {
namespace {

using Place = int Cpu::*;

using CpusOfPlace = std::map<int, std::vector<int>>;

// The usable cores that auto takes for a rank.
std::vector<Core> CoresOf(const Host& host) {
  return WithoutEfficiencyCores(host.machine, AllowedCores(host.machine, host.budget), 1).computing;
}

// The CPUs of every value of `place`; of each core the first one, or all.
CpusOfPlace CpusBy(Place place, const Host& host, const std::vector<Core>& cores,
                   bool siblings = false) {
  CpusOfPlace places;
  for (const Core& core : cores) {
    std::vector<int>& cpus = places[host.machine.Find(core.cpus[0])->*place];
    cpus.insert(cpus.end(), core.cpus.begin(), siblings ? core.cpus.end() : core.cpus.begin() + 1);
  }
  for (auto& [value, cpus] : places) std::sort(cpus.begin(), cpus.end());
  return places;
}

CpusOfPlace CpusBy(Place place, const Host& host, bool siblings = false) {
  return CpusBy(place, host, CoresOf(host), siblings);
}

int CountOf(Place place, const Host& host) {
  return std::max<int>(1, static_cast<int>(CpusBy(place, host).size()));
}

std::vector<int> FirstCpus(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.push_back(core.cpus[0]);
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

// If there are cores of several kinds: each kind alone, the fastest first, and all of them; without
// the list that auto takes.
std::vector<std::vector<int>> ListsByKind(const Host& host) {
  const std::vector<Core> cores = AllowedCores(host.machine, host.budget);
  const CpusOfPlace kinds = CpusBy(&Cpu::kind, host, cores);
  std::vector<std::vector<int>> lists;
  if (kinds.size() < 2) return lists;
  for (auto kind = kinds.rbegin(); kind != kinds.rend(); ++kind) lists.push_back(kind->second);
  lists.push_back(FirstCpus(cores));
  std::erase(lists, FirstCpus(CoresOf(host)));
  return lists;
}

// The same number of CPUs for every rank, of each place one.
std::string RankOnEach(const CpusOfPlace& places) {
  std::vector<std::string> lists;
  for (const auto& [place, cpus] : places) lists.push_back(FormatCpuList(cpus));
  return Join(lists, "|");
}

}  // namespace

int NodesWithCpus(const Host& host) { return CountOf(&Cpu::node, host); }
int SocketsWithCpus(const Host& host) { return CountOf(&Cpu::package, host); }

bool HasSiblings(const Host& host) {
  return std::any_of(host.budget.cpus.begin(), host.budget.cpus.end(), [&](int id) {
    const Cpu* cpu = host.machine.Find(id);
    return cpu && cpu->sibling > 0;
  });
}

std::string HalfTheCores(const Host& host) {
  std::vector<int> half;
  bool take = true;
  size_t cores = 0;
  for (const auto& [core, cpus] : CpusBy(&Cpu::core, host)) {
    if (std::exchange(take, !take)) half.push_back(cpus.front());
    ++cores;
  }
  return half.size() < cores ? FormatCpuList(half) : "";
}

std::vector<ExplicitBinding> ExplicitBindings(const Host& host) {
  constexpr size_t kMostDomains = 16;
  std::vector<ExplicitBinding> bindings;
  const auto add = [&](std::string list, size_t ranks) {
    const auto same = [&](const ExplicitBinding& one) { return one.list == list; };
    if (!list.empty() && std::none_of(bindings.begin(), bindings.end(), same))
      bindings.push_back({std::move(list), static_cast<int>(ranks)});
  };
  add(HalfTheCores(host), 1);
  for (const Place place : {&Cpu::package, &Cpu::node, &Cpu::l3})
    if (const auto places = CpusBy(place, host); places.size() > 1)
      add(FormatCpuList(places.begin()->second), 1);
  for (const std::vector<int>& kind : ListsByKind(host)) add(FormatCpuList(kind), 1);
  const auto nodes = CpusBy(&Cpu::node, host), domains = CpusBy(&Cpu::l3, host);
  if (nodes.size() > 1) {
    add(RankOnEach(nodes), nodes.size());
    add(RankOnEach(CpusBy(&Cpu::node, host, true)), nodes.size());
  }
  if (domains.size() > 1 && domains.size() <= kMostDomains)
    add(RankOnEach(domains), domains.size());
  return bindings;
}

}  // namespace pinion::harness
