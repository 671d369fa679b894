// --threads-bind auto: one thread per physical core, ranks on NUMA nodes of their own.

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "engine/host/binding_modes.h"
#include "engine/host/cores.h"

namespace pinion {
namespace {

// If a rank would keep fewer cores than this, sharing them costs less than giving one away.
constexpr size_t kCoresToKeepBesideFrontend = 4;

using CpusOfRank = std::vector<std::vector<int>>;

// Threads on a node whose memory is forbidden would read every weight from another node. Such nodes
// are left out, unless the others have too few cores.
std::vector<Core> CoresWithMemory(const BindingInput& input, std::vector<std::string>& warnings) {
  std::set<int> without_memory;
  for (const NumaNode& node : input.machine.nodes)
    if (!node.memory_allowed) without_memory.insert(node.id);
  std::vector<Core> all = AllowedCores(input.machine, input.budget);
  std::vector<Core> near, far;
  std::set<int> far_nodes;
  for (const Core& core : all) {
    const bool has_memory = without_memory.count(core.node) == 0;
    (has_memory ? near : far).push_back(core);
    if (!has_memory) far_nodes.insert(core.node);
  }
  if (far.empty()) return all;
  const std::string nodes = FormatCpuList({far_nodes.begin(), far_nodes.end()});
  if (near.size() < static_cast<size_t>(input.request.ranks)) {
    warnings.push_back(StrCat("memory of node ", nodes, " is forbidden (cpuset.mems): its ",
                              Count(far.size(), "core"), " read from other nodes"));
    return all;
  }
  warnings.push_back(StrCat(Count(far.size(), "core"), " of node ", nodes,
                            " stay idle: the cpuset forbids that node's memory (cpuset.mems)"));
  return near;
}

size_t FewestCpus(const CpusOfRank& cpus_of_rank) {
  size_t fewest = cpus_of_rank[0].size();
  for (const auto& cpus : cpus_of_rank) fewest = std::min(fewest, cpus.size());
  return fewest;
}

// Cores for the front end: `spare` ones, which no rank uses, and then those at the ends of the
// ranks.
class Holder {
 public:
  // Together, ranks and front end run at most `most` threads.
  Holder(CpusOfRank& cpus_of_rank, std::vector<int> spare, size_t most)
      : cpus_of_rank_(cpus_of_rank), spare_(std::move(spare)), most_(most) {
    for (const auto& cpus : cpus_of_rank) total_ += cpus.size();
    if (spare_.size() >= most) spare_.resize(most - 1);
  }

  // How many can be held if every rank keeps a core.
  size_t most() const {
    const size_t ranks = cpus_of_rank_.size();
    return std::min(total_ - ranks + spare_.size(), most_ - ranks);
  }

  std::vector<int> Hold(size_t count) {
    std::vector<int> held;
    for (size_t i = 0; i < count; ++i) {
      const bool is_spare = i < spare_.size();
      if (is_spare) held.push_back(spare_[i]);
      if (is_spare && total_ + held.size() <= most_) continue;
      auto& longest = Longest();
      if (!is_spare) held.push_back(longest.back());
      longest.pop_back();
      --total_;
    }
    std::sort(held.begin(), held.end());
    return held;
  }

 private:
  // Of equal ones the first: the front end exchanges messages with the main thread, which leads
  // rank 0.
  std::vector<int>& Longest() {
    auto longest = cpus_of_rank_.begin();
    for (auto at = longest; at != cpus_of_rank_.end(); ++at)
      if (at->size() > longest->size()) longest = at;
    return *longest;
  }

  CpusOfRank& cpus_of_rank_;
  std::vector<int> spare_;
  size_t most_, total_ = 0;
};

Status Reserve(const BindingInput& input, const std::vector<Core>& left_out,
               CpusOfRank& cpus_of_rank, std::vector<int>& frontend_cpus,
               std::vector<std::string>& reasons) {
  const BindingRequest& request = input.request;
  const auto most = static_cast<size_t>(input.budget.max_threads);
  std::vector<int> spare;
  for (const Core& core : left_out) spare.push_back(core.cpus[0]);
  size_t total = 0;
  for (const auto& cpus : cpus_of_rank) total += cpus.size();
  if (request.reserved_cpus) {
    const auto wanted = static_cast<size_t>(*request.reserved_cpus);
    Holder holder(cpus_of_rank, std::move(spare), most);
    if (wanted > holder.most()) {
      const bool by_quota = most == total;
      return Fail(
          ErrorCode::kUsage,
          StrCat("reserved-cpus ", wanted, " does not leave every rank a core: ",
                 by_quota && input.budget.cpu_quota ? StrCat(DescribeQuota(input.budget), " for ")
                                                    : StrCat(Count(total, "core"), " for "),
                 Count(cpus_of_rank.size(), "rank"), "; reserve at most ", holder.most()));
    }
    frontend_cpus = holder.Hold(wanted);
    if (wanted > 0)
      reasons.push_back(StrCat("--reserved-cpus ", wanted, " reserves cpu ",
                               FormatCpuList(frontend_cpus), " for the front end"));
    return {};
  }
  if (!request.has_frontend) return {};
  CpusOfRank rest = cpus_of_rank;
  Holder holder(rest, std::move(spare), most);
  const std::vector<int> held = holder.most() > 0 ? holder.Hold(1) : std::vector<int>();
  const bool costs_a_core = rest != cpus_of_rank;
  if (held.empty() || (costs_a_core && FewestCpus(rest) < kCoresToKeepBesideFrontend)) {
    reasons.push_back(
        StrCat("the front end shares the ranks' CPUs: if it had a core of its own, a rank would "
               "keep fewer than ",
               kCoresToKeepBesideFrontend, " cores"));
    return {};
  }
  cpus_of_rank = std::move(rest);
  frontend_cpus = held;
  reasons.push_back(StrCat("the front end has cpu ", held[0],
                           " to itself; --reserved-cpus 0 makes it share the ranks' CPUs"));
  return {};
}

// Adds each core's other hardware threads right after its first, so that neighbours in a team share
// the core's caches.
CpusOfRank WithSiblings(const CpusOfRank& cpus_of_rank, const std::vector<Core>& cores) {
  CpusOfRank all;
  for (const auto& cpus : cpus_of_rank) {
    all.emplace_back();
    for (const Core& core : cores)
      if (std::find(cpus.begin(), cpus.end(), core.cpus[0]) != cpus.end())
        all.back().insert(all.back().end(), core.cpus.begin(), core.cpus.end());
  }
  return all;
}

// Runs after Reserve, so that no rank computes on a sibling of the front end's core.
Status UseSmt(const BindingInput& input, const std::vector<Core>& cores,
              const std::vector<int>& frontend_cpus, CpusOfRank& cpus_of_rank,
              std::vector<std::string>& reasons) {
  if (!input.request.smt) return {};
  const bool has_siblings = std::any_of(cores.begin(), cores.end(),
                                        [](const Core& core) { return core.cpus.size() > 1; });
  if (!has_siblings)
    return Fail(ErrorCode::kUsage,
                "--smt on needs cores with several usable hardware threads, but each core here has "
                "only one; leave it out");
  cpus_of_rank = WithSiblings(cpus_of_rank, cores);
  const size_t most = static_cast<size_t>(input.budget.max_threads) - frontend_cpus.size();
  TrimRanks(cpus_of_rank, std::max(most, cpus_of_rank.size()));
  reasons.emplace_back("--smt on: every hardware thread of these cores");
  return {};
}

void ExplainRanks(const BindingInput& input, size_t nodes, Plan& plan) {
  for (const RankPlan& rank : plan.ranks)
    plan.reasons.push_back(StrCat("rank ", rank.rank, ": ", Count(rank.cpus.size(), "thread"),
                                  " on node ", FormatCpuList(rank.nodes), ", cpu ",
                                  FormatCpuList(rank.cpus)));
  const auto spans = std::find_if(plan.ranks.begin(), plan.ranks.end(),
                                  [](const RankPlan& rank) { return rank.nodes.size() > 1; });
  if (spans == plan.ranks.end()) return;
  plan.warnings.push_back(StrCat("rank ", spans->rank, " spans nodes ", FormatCpuList(spans->nodes),
                                 ": part of what it reads lies on another node; -tp ", nodes,
                                 " gives each node a rank of its own"));
}

// Explains how a machine's efficiency cores are used.
void ExplainKinds(const BindingInput& input, const std::vector<Core>& left_out,
                  const std::vector<Core>& cores, std::vector<std::string>& reasons,
                  std::vector<std::string>& warnings) {
  if (!left_out.empty()) {
    std::vector<int> cpus;
    for (const Core& core : left_out) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
    reasons.push_back(StrCat("cpu ", FormatCpuList(cpus), left_out.size() == 1 ? " is an" : " are",
                             " efficiency ", left_out.size() == 1 ? "core" : "cores",
                             ", which would hold up the others: no rank computes there; a list in "
                             "--threads-bind may name them"));
    return;
  }
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.push_back(core.cpus[0]);
  if (const std::string mixed = WarningOfKinds(input.machine, cpus); !mixed.empty())
    warnings.push_back(StrCat(mixed, " if there are enough others for the ranks"));
  else if (const std::string kinds = DescribeKinds(input.machine, cpus); !kinds.empty())
    reasons.push_back(StrCat(kinds, ": all compute"));
}

// Cores that no rank got, because a rank on so few would have slowed down all others.
void WarnOfUnusedCores(const std::vector<Core>& cores, const std::vector<std::vector<Core>>& parts,
                       std::vector<std::string>& warnings) {
  std::set<int> used;
  for (const auto& part : parts)
    for (const Core& core : part) used.insert(core.core);
  std::vector<int> idle;
  for (const Core& core : cores)
    if (used.count(core.core) == 0) idle.push_back(core.cpus[0]);
  if (idle.empty()) return;
  std::sort(idle.begin(), idle.end());
  warnings.push_back(StrCat("cpu ", FormatCpuList(idle), idle.size() == 1 ? " stays" : " stay",
                            " idle: a rank on so few cores would slow down the others"));
}

}  // namespace

Result<Plan> PlanAuto(const BindingInput& input) {
  std::vector<std::string> warnings, reasons;
  const auto ranks = static_cast<size_t>(input.request.ranks);
  const auto [cores, left_out] =
      WithoutEfficiencyCores(input.machine, CoresWithMemory(input, warnings), ranks);
  if (ranks > cores.size())
    return Fail(
        ErrorCode::kUsage,
        StrCat(Count(ranks, "rank"), " cannot each have a core: auto has ",
               Count(cores.size(), "core"), "; use ", Count(cores.size(), "rank"),
               " or fewer (-tp times -pp), --threads-bind all to use SMT siblings, or nobind"));
  reasons.push_back(StrCat("auto: one thread per physical core, ", Count(cores.size(), "core"),
                           " of ", Count(input.budget.cpus.size(), "allowed CPU")));
  ExplainKinds(input, left_out, cores, reasons, warnings);
  const auto parts = DivideCores(cores, ranks);
  WarnOfUnusedCores(cores, parts, warnings);
  CpusOfRank cpus_of_rank;
  for (const auto& part : parts) {
    cpus_of_rank.emplace_back();
    for (const Core& core : part) cpus_of_rank.back().push_back(core.cpus[0]);
  }
  // The quota first: the front end's core counts towards it, and is best taken from those that
  // remain.
  const auto most = static_cast<size_t>(input.budget.max_threads);
  const size_t idle = TrimRanks(cpus_of_rank, most);
  std::vector<int> frontend_cpus;
  PINION_TRY(Reserve(input, left_out, cpus_of_rank, frontend_cpus, reasons));
  PINION_TRY(UseSmt(input, cores, frontend_cpus, cpus_of_rank, reasons));
  Plan plan = PlanOf(input.machine, std::move(cpus_of_rank));
  plan.frontend_cpus = std::move(frontend_cpus);
  plan.reasons = std::move(reasons);
  plan.warnings = std::move(warnings);
  if (idle > 0)
    plan.warnings.push_back(StrCat(DescribeQuota(input.budget),
                                   plan.frontend_cpus.empty() ? "" : ", including the front end's",
                                   ": ", Count(idle, "core"), idle == 1 ? " stays" : " stay",
                                   " idle"));
  std::set<int> nodes;
  for (const Core& core : cores) nodes.insert(core.node);
  ExplainRanks(input, nodes.size(), plan);
  WarnOfUnevenRanks(plan);
  return plan;
}

}  // namespace pinion
