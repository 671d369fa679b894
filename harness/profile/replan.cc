#include "harness/profile/replan.h"

#include <algorithm>
#include <utility>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// The CPU lists of a binding; empty if it is a mode, or no list that can be read.
std::vector<std::vector<int>> ListsOf(const std::string& binding) {
  std::vector<std::vector<int>> lists;
  for (const std::string& text : Split(binding, '|')) {
    auto list = ParseCpuList(Trim(text));
    if (!list || list->empty()) return {};
    lists.push_back(std::move(*list));
  }
  return lists;
}

// A plan in short: the CPUs and NUMA nodes of each rank, and the CPUs of the front end.
struct Shape {
  std::vector<std::vector<int>> ranks, nodes;
  std::vector<int> frontend;
};

std::string ListsText(const std::vector<std::vector<int>>& lists) {
  std::vector<std::string> texts;
  for (const auto& list : lists) texts.push_back(FormatCpuList(list));
  return Join(texts, "|");
}

std::string TextOf(const Shape& shape, bool with_nodes) {
  std::vector<std::string> threads;
  for (const auto& rank : shape.ranks) threads.push_back(StrCat(rank.size()));
  const bool is_one = threads.size() == 1 && threads.front() == "1";
  return StrCat(Join(threads, " + "), is_one ? " thread on CPU " : " threads on CPUs ",
                ListsText(shape.ranks),
                with_nodes ? StrCat(" of NUMA nodes ", ListsText(shape.nodes)) : "",
                shape.frontend.empty() ? "" : ", front end on ", FormatCpuList(shape.frontend));
}

// Whether both name the nodes of all ranks, and not the same ones.
bool NodesDiffer(const Shape& a, const Shape& b) {
  const auto named = [](const Shape& shape) {
    return std::none_of(shape.nodes.begin(), shape.nodes.end(),
                        [](const auto& nodes) { return nodes.empty(); });
  };
  return named(a) && named(b) && a.nodes != b.nodes;
}

}  // namespace

std::optional<std::string> ListsHere(const EngineOptions& options, int ranks,
                                     const Machine& machine, const Budget& budget) {
  const auto lists = ListsOf(options.threads_bind);
  if (lists.size() != static_cast<size_t>(ranks)) return std::nullopt;
  const auto can_stay = [&](const std::vector<int>& list) {
    return std::all_of(list.begin(), list.end(), [&](int cpu) {
      return std::binary_search(budget.cpus.begin(), budget.cpus.end(), cpu);
    });
  };
  if (std::all_of(lists.begin(), lists.end(), can_stay)) return std::nullopt;
  BindingRequest request;
  request.ranks = ranks;
  const auto plan = MakePlan(machine, budget, request);
  if (!plan) return std::nullopt;
  std::vector<std::string> here;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    std::vector<int> cpus = plan->ranks[rank].cpus;
    cpus.resize(std::min(cpus.size(), lists[rank].size()));
    here.push_back(FormatCpuList(cpus));
  }
  return Join(here, "|");
}

std::optional<std::string> DifferenceOfPlans(const Json* measured, const Plan& here) {
  const Json* ranks = measured ? measured->Find("ranks") : nullptr;
  if (!ranks || !ranks->is_array()) return std::nullopt;
  Shape before, now;
  for (const Json& rank : ranks->array()) {
    before.ranks.push_back(IntegersIn(rank.Find("cpus")));
    before.nodes.push_back(IntegersIn(rank.Find("nodes")));
  }
  before.frontend = IntegersIn(measured->Find("frontend_cpus"));
  for (const RankPlan& rank : here.ranks) {
    now.ranks.push_back(rank.cpus);
    now.nodes.push_back(rank.nodes);
  }
  now.frontend = here.frontend_cpus;
  for (Shape* shape : {&before, &now}) {
    for (auto* lists : {&shape->ranks, &shape->nodes})
      for (auto& list : *lists) std::sort(list.begin(), list.end());
    std::sort(shape->frontend.begin(), shape->frontend.end());
  }
  if (now.ranks == before.ranks && now.frontend == before.frontend) return std::nullopt;
  const bool with_nodes = NodesDiffer(now, before);
  return StrCat("the plan is not the measured one: ", TextOf(now, with_nodes),
                "; measured: ", TextOf(before, with_nodes));
}

}  // namespace pinion::harness
