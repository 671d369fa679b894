#include "engine/host/binding.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "engine/base/strings.h"
#include "engine/host/binding_modes.h"
#include "engine/host/cores.h"

namespace pinion {
namespace {

Status CheckRequest(const BindingInput& input) {
  const BindingRequest& request = input.request;
  if (request.ranks < 1)
    return Fail(ErrorCode::kUsage,
                StrCat("tensor-parallel size ", request.ranks, " is out of range; want 1 or more"));
  if (request.reserved_cpus && *request.reserved_cpus < 0)
    return Fail(ErrorCode::kUsage, StrCat("reserved-cpus ", *request.reserved_cpus,
                                          " is out of range; want 0 or more"));
  if (request.nobind_threads && *request.nobind_threads < 1)
    return Fail(ErrorCode::kUsage, StrCat("OMP_NUM_THREADS ", *request.nobind_threads,
                                          " is out of range; want 1 or more"));
  return {};
}

// Only nobind lets threads share CPUs: threads that spin on one CPU slow each other down.
Status CheckRanksFit(const BindingInput& input) {
  const auto ranks = static_cast<size_t>(input.request.ranks);
  const Budget& budget = input.budget;
  const bool by_quota = budget.max_threads < static_cast<int>(budget.cpus.size());
  if (ranks <= static_cast<size_t>(budget.max_threads)) return {};
  return Fail(ErrorCode::kUsage,
              StrCat(Count(ranks, "rank"), " cannot each have a CPU: ",
                     by_quota ? DescribeQuota(budget)
                              : StrCat(Count(budget.cpus.size(), "CPU"), " may be used (",
                                       FormatCpuList(budget.cpus), ")"),
                     "; use ", Count(static_cast<size_t>(budget.max_threads), "rank"),
                     " or fewer (-tp times -pp), or --threads-bind nobind"));
}

Result<Plan> Dispatch(const BindingInput& input) {
  const std::string_view bind = Trim(input.request.threads_bind);
  if (input.request.smt && bind != "auto")
    return Fail(ErrorCode::kUsage,
                StrCat("--smt on works only under auto, not under threads-bind '", bind,
                       "': all uses every hardware thread, and a list names its own"));
  if (bind == "nobind") return PlanNobind(input);
  if (bind == "auto" || bind == "all") {
    PINION_TRY(CheckRanksFit(input));
    return bind == "auto" ? PlanAuto(input) : PlanAll(input);
  }
  if (bind.empty() || bind.find_first_not_of("0123456789,-:| \t") != std::string_view::npos)
    return Fail(ErrorCode::kUsage,
                StrCat("threads-bind '", input.request.threads_bind,
                       "' is none of auto, all, nobind, or a CPU list per rank as 0-3|4-7"));
  return PlanLists(input);
}

}  // namespace

Result<Plan> MakePlan(const Machine& machine, const Budget& budget, const BindingRequest& request) {
  const BindingInput input{machine, budget, request};
  PINION_TRY(CheckRequest(input));
  return Dispatch(input);
}

Result<std::optional<int>> OmpNumThreads() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  if (!value || Trim(value).empty()) return std::nullopt;
  PINION_ASSIGN(const int64_t threads, ParseInt(Trim(Split(value, ',')[0]), "OMP_NUM_THREADS"));
  if (threads < 1 || threads > std::numeric_limits<int>::max())
    return Fail(ErrorCode::kUsage, StrCat("OMP_NUM_THREADS '", value, "' is not a number >= 1"));
  return static_cast<int>(threads);
}

std::string Count(size_t number, std::string_view noun) {
  return StrCat(number, ' ', noun, number == 1 ? "" : "s");
}

std::string DescribeQuota(const Budget& budget) {
  return StrCat("the quota of ", budget.cpu_quota.value_or(0), " CPUs allows ",
                Count(static_cast<size_t>(budget.max_threads), "thread"));
}

size_t TrimRanks(std::vector<std::vector<int>>& cpus_of_rank, size_t most) {
  size_t total = 0, taken = 0;
  for (const auto& cpus : cpus_of_rank) total += cpus.size();
  for (; total - taken > most; ++taken) {
    // Of equally long ranks the last, so that rank 0, which also schedules, is never the smaller.
    auto longest = cpus_of_rank.begin();
    for (auto at = longest; at != cpus_of_rank.end(); ++at)
      if (at->size() >= longest->size()) longest = at;
    longest->pop_back();
  }
  return taken;
}

Plan PlanOf(const Machine& machine, std::vector<std::vector<int>> cpus_of_rank) {
  Plan plan;
  for (auto& cpus : cpus_of_rank) {
    RankPlan rank;
    rank.rank = static_cast<int>(plan.ranks.size());
    rank.nodes = NodesOfCpus(machine, cpus);
    rank.threads = static_cast<int>(cpus.size());
    rank.groups = GroupsOfCpus(machine, cpus);
    rank.cpus = std::move(cpus);
    plan.ranks.push_back(std::move(rank));
  }
  return plan;
}

void WarnOfUnevenRanks(Plan& plan) {
  const auto [least, most] = std::minmax_element(
      plan.ranks.begin(), plan.ranks.end(),
      [](const RankPlan& a, const RankPlan& b) { return a.threads < b.threads; });
  if (most->threads - least->threads <= 1) return;
  plan.warnings.push_back(
      StrCat("rank ", least->rank, " has ", Count(static_cast<size_t>(least->threads), "thread"),
             " and rank ", most->rank, " has ", most->threads,
             ": the smaller one sets the pace; choose a -tp that divides the machine evenly"));
}

}  // namespace pinion
