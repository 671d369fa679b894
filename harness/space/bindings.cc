#include "harness/space/bindings.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using Place = int Cpu::*;

// The usable CPUs of every value of `place`; of each core the first one, or all.
std::map<int, std::vector<int>> CpusBy(Place place, const Host& host, bool siblings = false) {
  std::set<int> cores;
  std::map<int, std::vector<int>> places;
  for (const int id : host.budget.cpus)
    if (const Cpu* cpu = host.machine.Find(id); cpu && (siblings || cores.insert(cpu->core).second))
      places[cpu->*place].push_back(id);
  return places;
}

int CountOf(Place place, const Host& host) {
  return std::max<int>(1, static_cast<int>(CpusBy(place, host).size()));
}

// The same number of CPUs for every rank, of each place one.
std::string RankOnEach(const std::map<int, std::vector<int>>& places) {
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
