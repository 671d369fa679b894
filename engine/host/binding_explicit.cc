// --threads-bind all, nobind and lists: the explicit alternatives to auto.

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/strings.h"
#include "engine/host/binding_modes.h"
#include "engine/host/cores.h"

namespace pinion {
namespace {

// Only auto reserves cores; under all and nobind the front end shares the ranks' CPUs.
void ExplainFrontend(const BindingInput& input, Plan& plan) {
  if (input.request.has_frontend) plan.reasons.emplace_back("the front end shares the ranks' CPUs");
  if (input.request.reserved_cpus.value_or(0) == 0) return;
  plan.warnings.push_back(StrCat("reserved-cpus ", *input.request.reserved_cpus,
                                 " has no effect under ", Trim(input.request.threads_bind),
                                 "; it works only under auto"));
}

// Once the quota is used up, the kernel stops threads for the rest of each period while the others
// spin at a barrier.
void TrimToQuota(const BindingInput& input, std::vector<std::vector<int>>& cpus_of_rank,
                 std::vector<std::string>& warnings) {
  const size_t idle = TrimRanks(cpus_of_rank, static_cast<size_t>(input.budget.max_threads));
  if (idle == 0) return;
  warnings.push_back(StrCat(DescribeQuota(input.budget), ": the last ", Count(idle, "CPU"),
                            " of the ranks ", idle == 1 ? "stays" : "stay", " idle"));
}

// Warns of cores that run two threads, of the same rank or not.
void WarnOfSiblings(const BindingInput& input, Plan& plan) {
  std::map<int, std::vector<int>> cpus_of_core;
  for (const RankPlan& rank : plan.ranks)
    for (int cpu : rank.cpus) cpus_of_core[input.machine.Find(cpu)->core].push_back(cpu);
  size_t shared = 0;
  std::string example;
  for (auto& [core, cpus] : cpus_of_core) {
    if (cpus.size() < 2) continue;
    std::sort(cpus.begin(), cpus.end());
    if (shared++ == 0) example = StrCat("cpus ", cpus[0], " and ", cpus[1]);
  }
  if (shared == 0) return;
  plan.warnings.push_back(
      StrCat(example, " are siblings on one core",
             shared > 1 ? StrCat(", likewise on ", Count(shared - 1, "other core")) : "",
             ": two threads share its arithmetic units"));
}

void WarnOfKinds(const BindingInput& input, Plan& plan) {
  std::vector<int> cpus;
  for (const RankPlan& rank : plan.ranks)
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  if (std::string warning = WarningOfKinds(input.machine, cpus); !warning.empty())
    plan.warnings.push_back(std::move(warning));
}

void WarnOfSpannedNodes(Plan& plan) {
  for (const RankPlan& rank : plan.ranks)
    if (rank.nodes.size() > 1)
      plan.warnings.push_back(StrCat("the CPUs of rank ", rank.rank, " lie on nodes ",
                                     FormatCpuList(rank.nodes),
                                     ": part of what it reads lies on another node"));
}

// Divides every allowed CPU: ranks get neighbouring nodes and cores, and within a rank the first
// siblings come before the second ones, so that TrimToQuota drops siblings first.
std::vector<std::vector<int>> DivideCpus(const BindingInput& input, size_t ranks) {
  std::vector<std::pair<int, int>> all;  // {place among its core's allowed CPUs, cpu}
  for (const Core& core : AllowedCores(input.machine, input.budget))
    for (size_t i = 0; i < core.cpus.size(); ++i)
      all.emplace_back(static_cast<int>(i), core.cpus[i]);
  std::vector<std::vector<int>> cpus_of_rank(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(all.size() * rank / ranks);
    const auto end = all.begin() + static_cast<ptrdiff_t>(all.size() * (rank + 1) / ranks);
    std::stable_sort(begin, end, [](auto& a, auto& b) { return a.first < b.first; });
    for (auto at = begin; at != end; ++at) cpus_of_rank[rank].push_back(at->second);
  }
  return cpus_of_rank;
}

// Cores whose siblings belong to different ranks.
void WarnOfSplitCores(const BindingInput& input, Plan& plan) {
  std::map<int, std::set<int>> ranks_of_core;
  for (const RankPlan& rank : plan.ranks)
    for (int cpu : rank.cpus) ranks_of_core[input.machine.Find(cpu)->core].insert(rank.rank);
  const auto split = std::count_if(ranks_of_core.begin(), ranks_of_core.end(),
                                   [](const auto& entry) { return entry.second.size() > 1; });
  if (split > 0)
    plan.warnings.push_back(StrCat(Count(static_cast<size_t>(split), "core"),
                                   " shared by two ranks, which slow each other down; use auto"));
}

class ListChecker {
 public:
  explicit ListChecker(const BindingInput& input) : input_(input) {}

  Status Check(int cpu, size_t rank) {
    const Machine& machine = input_.machine;
    const Budget& budget = input_.budget;
    if (!machine.Find(cpu))
      return Bad(cpu, rank,
                 StrCat("does not exist or is offline; this machine has ", All(machine)));
    if (!std::binary_search(budget.cpus.begin(), budget.cpus.end(), cpu))
      return Bad(cpu, rank,
                 StrCat("is outside this process's affinity or cpuset; allowed are ",
                        FormatCpuList(budget.cpus)));
    if (const auto [seen, is_new] = rank_of_.try_emplace(cpu, rank); !is_new)
      return Bad(cpu, rank,
                 StrCat("is already used by rank ", seen->second, "; name every CPU once"));
    return {};
  }

 private:
  static std::string All(const Machine& machine) {
    std::vector<int> ids;
    for (const Cpu& cpu : machine.cpus) ids.push_back(cpu.id);
    return FormatCpuList(ids);
  }
  Status Bad(int cpu, size_t rank, const std::string& why) const {
    return Fail(ErrorCode::kUsage, StrCat("threads-bind '", input_.request.threads_bind, "': cpu ",
                                          cpu, " of rank ", rank, ' ', why));
  }

  const BindingInput& input_;
  std::map<int, size_t> rank_of_;
};

Result<std::vector<std::vector<int>>> ParseLists(const BindingInput& input) {
  const std::string& text = input.request.threads_bind;
  const std::vector<std::string> lists = Split(Trim(text), '|');
  if (lists.size() != static_cast<size_t>(input.request.ranks))
    return Fail(ErrorCode::kUsage,
                StrCat("threads-bind '", text, "' has ", Count(lists.size(), "list"), " for ",
                       Count(static_cast<size_t>(input.request.ranks), "rank"),
                       "; write one list per rank, joined by '|', or use ",
                       Count(lists.size(), "rank"), " (-tp times -pp)"));
  std::vector<std::vector<int>> cpus_of_rank;
  ListChecker checker(input);
  for (const std::string& list : lists) {
    auto cpus = ParseCpuList(list);
    if (!cpus) return Unexpected(std::move(cpus).error().In(StrCat("threads-bind '", text, "'")));
    for (int cpu : *cpus) PINION_TRY(checker.Check(cpu, cpus_of_rank.size()));
    cpus_of_rank.push_back(std::move(*cpus));
  }
  return cpus_of_rank;
}

// Under a list the front end gets the CPUs left out of it: cores that are wholly free if there are
// any, else siblings.
void PlaceFrontend(const BindingInput& input, Plan& plan) {
  if (!input.request.has_frontend) return;
  std::set<int> busy_cpus, busy_cores;
  for (const RankPlan& rank : plan.ranks) {
    for (int cpu : rank.cpus) {
      busy_cpus.insert(cpu);
      busy_cores.insert(input.machine.Find(cpu)->core);
    }
  }
  std::vector<int> free_cores, siblings;
  for (int cpu : input.budget.cpus) {
    if (busy_cpus.count(cpu) > 0) continue;
    (busy_cores.count(input.machine.Find(cpu)->core) > 0 ? siblings : free_cores).push_back(cpu);
  }
  std::vector<int>& chosen = free_cores.empty() ? siblings : free_cores;
  const auto spare = static_cast<size_t>(input.budget.max_threads - plan.total_threads());
  if (chosen.size() > spare) chosen.resize(spare);  // the front end's time counts in the quota too
  plan.reasons.push_back(
      chosen.empty()
          ? "the front end shares the ranks' CPUs: the lists leave no CPU free"
          : StrCat("the front end has the CPUs that the lists leave out: ", FormatCpuList(chosen)));
  plan.frontend_cpus = chosen;
}

}  // namespace

Result<Plan> PlanAll(const BindingInput& input) {
  const auto ranks = static_cast<size_t>(input.request.ranks);
  std::vector<std::string> warnings;
  auto cpus_of_rank = DivideCpus(input, ranks);
  TrimToQuota(input, cpus_of_rank, warnings);
  Plan plan = PlanOf(input.machine, std::move(cpus_of_rank));
  plan.warnings = std::move(warnings);
  plan.reasons.push_back(
      StrCat("all: every allowed logical CPU, ", Count(input.budget.cpus.size(), "CPU"),
             ", siblings included",
             ranks > 1 ? StrCat(", divided evenly among ", Count(ranks, "rank")) : ""));
  ExplainFrontend(input, plan);
  WarnOfSplitCores(input, plan);
  WarnOfSpannedNodes(plan);
  WarnOfKinds(input, plan);
  return plan;
}

Result<Plan> PlanNobind(const BindingInput& input) {
  const BindingRequest& request = input.request;
  const ChosenCores chosen = WithoutEfficiencyCores(
      input.machine, AllowedCores(input.machine, input.budget), static_cast<size_t>(request.ranks));
  const auto cores = static_cast<int>(chosen.computing.size());
  const int most = std::max(1, input.budget.max_threads / request.ranks);
  const int share = std::max(1, std::min(cores, input.budget.max_threads) / request.ranks);
  const int threads = std::min(request.nobind_threads.value_or(share), most);
  Plan plan;
  for (int rank = 0; rank < request.ranks; ++rank)
    plan.ranks.push_back({rank, {}, NodesOfCpus(input.machine, input.budget.cpus), threads});
  plan.reasons.push_back(
      StrCat("nobind: ", Count(static_cast<size_t>(threads), "thread"), " per rank ",
             request.nobind_threads ? "from OMP_NUM_THREADS" : "from the budget", ", not pinned"));
  if (request.nobind_threads && *request.nobind_threads > threads)
    plan.warnings.push_back(StrCat(
        "OMP_NUM_THREADS ", *request.nobind_threads, " was reduced to ", threads, " per rank: ",
        Count(static_cast<size_t>(input.budget.max_threads), "thread"), " in all may run at once"));
  if (plan.total_threads() > input.budget.max_threads)
    plan.warnings.push_back(StrCat(Count(static_cast<size_t>(plan.total_threads()), "thread"),
                                   " share ",
                                   Count(static_cast<size_t>(input.budget.max_threads), "CPU"),
                                   ": correct, but slow; use a smaller -tp"));
  ExplainFrontend(input, plan);
  return plan;
}

Result<Plan> PlanLists(const BindingInput& input) {
  if (input.request.reserved_cpus.value_or(0) > 0)
    return Fail(ErrorCode::kUsage,
                StrCat("reserved-cpus ", *input.request.reserved_cpus,
                       " works only under auto; with "
                       "threads-bind '",
                       input.request.threads_bind, "' leave CPUs out of the list instead"));
  PINION_ASSIGN(auto cpus_of_rank, ParseLists(input));
  if (input.request.ranks > input.budget.max_threads)
    return Fail(ErrorCode::kUsage,
                StrCat(Count(cpus_of_rank.size(), "rank"),
                       " cannot each have a thread: ", DescribeQuota(input.budget),
                       "; use a smaller -tp or --threads-bind nobind"));
  std::vector<std::string> warnings;
  TrimToQuota(input, cpus_of_rank, warnings);
  Plan plan = PlanOf(input.machine, std::move(cpus_of_rank));
  plan.warnings = std::move(warnings);
  plan.reasons.push_back(StrCat("explicit lists: ", input.request.threads_bind));
  WarnOfSiblings(input, plan);
  WarnOfSpannedNodes(plan);
  WarnOfKinds(input, plan);
  PlaceFrontend(input, plan);
  return plan;
}

}  // namespace pinion
