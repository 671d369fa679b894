#include "engine/run/replicas.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "engine/host/huge_pages.h"
#include "engine/run/capacity.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

std::string CountedRanks(int count) { return Counted(static_cast<size_t>(count), "rank"); }

std::string AtMost(const std::string& what, int most, const char* less) {
  return StrCat(what, most == 1 ? "" : less);
}

// The numbers of replicas, of ranks in each and of ranks in all that would fit on `most` CPUs.
std::string WaysOut(const EngineOptions& options, int replicas, int most) {
  const int fit = most / options.ranks(), each = most / replicas;
  std::string ways;
  if (fit > 0) ways = AtMost(StrCat("--data-parallel-size ", fit), fit, " or less") + ", ";
  if (each > 0)
    ways += AtMost(CountedRanks(each), each, " or fewer") + " in each (-tp times -pp), ";
  if (ways.empty())
    ways = AtMost(CountedRanks(most), most, " or fewer") +
           " in all (--data-parallel-size times -tp times -pp), ";
  return StrCat("use ", ways, "or --threads-bind nobind");
}

Status CheckCount(const EngineOptions& options, int replicas, const Budget& budget) {
  if (replicas < 1 || replicas > kMaxReplicas)
    return Fail(ErrorCode::kUsage,
                StrCat("replicas is ", replicas, "; it must be from 1 to ", kMaxReplicas));
  const int ranks = replicas * options.ranks(), most = budget.max_threads;
  if (replicas == 1 || ranks <= most || options.threads_bind == "nobind") return {};
  return Fail(
      ErrorCode::kUsage,
      StrCat(replicas, " replicas of ", CountedRanks(options.ranks()), " (-tp ",
             options.tensor_parallel, " -pp ", options.pipeline_parallel,
             ") cannot have a CPU for each rank: ", Counted(static_cast<size_t>(most), "thread"),
             " may run at once here; ", WaysOut(options, replicas, most)));
}

std::vector<std::string> ListsOf(const Plan& plan) {
  std::vector<std::string> lists;
  for (const RankPlan& rank : plan.ranks) lists.push_back(FormatCpuList(rank.cpus));
  return lists;
}

// The node of each rank of a replica; empty if one has several, or none that is known.
std::vector<int> NodeOfEachRank(const Plan& plan) {
  std::vector<int> nodes;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.nodes.size() != 1) return {};
    nodes.push_back(rank.nodes.front());
  }
  return nodes;
}

// Copies are numbered without gaps, so that fewer numbers mean that some are shared.
bool HasSharedCopy(const std::vector<int>& copies) {
  return *std::max_element(copies.begin(), copies.end()) + 1 < static_cast<int>(copies.size());
}

}  // namespace

Result<Plan> PlanReplicas(const EngineOptions& options, int replicas, const Machine& machine,
                          const Budget& budget) {
  PINION_TRY(CheckCount(options, replicas, budget));
  // The ranks of all replicas are planned together, so that no two share a CPU.
  EngineOptions all = options;
  all.tensor_parallel *= replicas;
  auto plan = PlanFor(all, machine, budget);
  if (!plan && replicas > 1)
    return Unexpected(std::move(plan).error().In(
        StrCat(replicas, " replicas x ", options.ranks(), " = ", all.ranks(), " ranks in all")));
  return plan;
}

Status CheckPrefillReplicas(const EngineOptions& options, int replicas, int prefill) {
  if (prefill == 0) return {};
  if (prefill < 0 || prefill >= replicas)
    return Fail(
        ErrorCode::kUsage,
        StrCat("--prefill-replicas is ", prefill, " of ", replicas,
               replicas == 1 ? " engine" : " engines",
               ", want fewer than all: one must answer requests; raise --data-parallel-size"));
  if (!options.prefix_caching)
    return Fail(ErrorCode::kUsage, StrCat("--prefill-replicas ", prefill,
                                          " hands keys and values over by way of the "
                                          "prefix cache; leave out --no-enable-prefix-caching"));
  return {};
}

Plan PlanOfReplica(const Plan& whole, int replicas, int index) {
  const size_t ranks = whole.ranks.size() / static_cast<size_t>(replicas);
  const auto first = whole.ranks.begin() + static_cast<ptrdiff_t>(ranks) * index;
  Plan plan;
  plan.ranks.assign(first, first + static_cast<ptrdiff_t>(ranks));
  for (size_t rank = 0; rank < ranks; ++rank) plan.ranks[rank].rank = static_cast<int>(rank);
  plan.frontend_cpus = whole.frontend_cpus;
  return plan;
}

EngineOptions OptionsOfReplica(EngineOptions options, const Plan& plan) {
  if (plan.ranks.front().cpus.empty()) return options;
  options.threads_bind = Join(ListsOf(plan), "|");
  options.smt = "off";
  options.reserved_cpus = 0;  // explicit, so that the replica's environment cannot override it
  return options;
}

std::vector<int> CpusOfReplica(const Plan& plan) {
  std::vector<int> cpus;
  for (const RankPlan& rank : plan.ranks)
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  if (!cpus.empty()) cpus.insert(cpus.end(), plan.frontend_cpus.begin(), plan.frontend_cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<std::pair<std::string, std::string>> EnvironmentOfReplica(const Plan& plan) {
  const RankPlan& rank = plan.ranks.front();
  if (!rank.cpus.empty()) return {};
  // An unbound replica would otherwise start a thread for every CPU.
  return {{"OMP_NUM_THREADS", StrCat(rank.threads)}};
}

std::vector<int> CopiesOfWeights(const EngineOptions& options, int replicas, const Plan& plan) {
  std::vector<int> copies;
  std::map<std::vector<int>, int> copy_of_nodes;
  const bool may_share = options.share_weights != "off" && options.memory_policy != "interleave";
  int count = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    const std::vector<int> nodes = NodeOfEachRank(PlanOfReplica(plan, replicas, replica));
    if (!may_share || nodes.empty()) {
      copies.push_back(count++);
      continue;
    }
    const auto [copy, is_new] = copy_of_nodes.try_emplace(nodes, count);
    count += is_new ? 1 : 0;
    copies.push_back(copy->second);
  }
  return copies;
}

std::string WhyUnshared(const EngineOptions& options, int replicas, const Plan& plan) {
  if (options.share_weights != "on" || HasSharedCopy(CopiesOfWeights(options, replicas, plan)))
    return "";
  constexpr const char* kNoEffect = "--share-weights on has no effect: ";
  if (replicas == 1)
    return StrCat(kNoEffect, "there is one engine; --data-parallel-size N starts several");
  if (options.memory_policy == "interleave")
    return StrCat(kNoEffect,
                  "under --memory-policy interleave each engine has a copy of its own; use local");
  for (int replica = 0; replica < replicas; ++replica)
    if (NodeOfEachRank(PlanOfReplica(plan, replicas, replica)).empty())
      return StrCat(kNoEffect, "--threads-bind ", options.threads_bind, " leaves engine ", replica,
                    " a rank that is not on one NUMA node, and shared pages lie where all that "
                    "read them are; keep each rank within a node");
  return StrCat(kNoEffect, "each of the ", replicas,
                " engines is on NUMA nodes of its own, and reads a copy there; "
                "--data-parallel-size with more engines puts several on a node");
}

PageSizes PageSizes::Here() { return {SharedPagesAreHuge(), PrivatePagesAreHuge()}; }

Result<bool> SharesWeights(const EngineOptions& options, int replicas, const PlannedModel& model,
                           const Machine& machine, const Budget& budget, const Plan& plan,
                           const PageSizes& pages) {
  if (!HasSharedCopy(CopiesOfWeights(options, replicas, plan))) return false;
  if (options.share_weights == "on" || pages.shared_are_huge || !pages.private_are_huge)
    return true;
  EngineOptions apart = options;
  apart.share_weights = "off";
  const Status fits = CheckReplicasFit(apart, replicas, model, machine, budget, plan);
  if (!fits && fits.error().code != ErrorCode::kExhausted) return Unexpected(Error(fits.error()));
  return !fits;
}

Status CheckReplicasFit(const EngineOptions& options, int replicas, const PlannedModel& model,
                        const Machine& machine, const Budget& budget, const Plan& plan) {
  PINION_ASSIGN(const size_t length, ResolveModelLength(model.spec, options));
  PINION_ASSIGN(const std::vector<RankNeeds> each, NeedsFor(options, model));
  std::vector<RankNeeds> needs;
  int copies = 0;
  for (const int copy : CopiesOfWeights(options, replicas, plan)) {
    const bool packs = copy == copies;
    copies += packs ? 1 : 0;
    for (RankNeeds rank : each) {
      if (!packs) rank.weights = 0;  // they are there
      needs.push_back(std::move(rank));
    }
  }
  return CheckCapacity(needs, options, length, machine, budget, plan);
}

Result<MemoryOfReplicas> DivideMemory(const EngineOptions& options, int replicas,
                                      const PlannedModel& model, const Machine& machine,
                                      const Budget& budget, const Plan& plan,
                                      const PageSizes& pages) {
  if (auto fits = CheckReplicasFit(options, replicas, model, machine, budget, plan); !fits)
    return Unexpected(std::move(fits).error().In(StrCat("--data-parallel-size ", replicas)));
  PINION_ASSIGN(const bool shares,
                SharesWeights(options, replicas, model, machine, budget, plan, pages));
  MemoryOfReplicas memory;
  memory.copies.resize(static_cast<size_t>(replicas));
  std::iota(memory.copies.begin(), memory.copies.end(), 0);
  if (shares) memory.copies = CopiesOfWeights(options, replicas, plan);
  if (options.kv_cache_bytes) {
    memory.kv_cache_bytes = *options.kv_cache_bytes;
    return memory;
  }
  const int copies = *std::max_element(memory.copies.begin(), memory.copies.end()) + 1;
  PINION_ASSIGN(memory.kv_cache_bytes, KvShareBytes(options, replicas, copies, budget));
  return memory;
}

Result<uint64_t> KvShareBytes(const EngineOptions& options, int replicas, int copies,
                              const Budget& budget) {
  PINION_ASSIGN(const PlannedModel model, PlanModel(options));
  PINION_ASSIGN(const std::vector<RankNeeds> needs, NeedsFor(options, model));
  uint64_t weights = 0, workspace = 0, state = 0;
  for (const RankNeeds& rank : needs) {
    weights += rank.weights;
    workspace += rank.workspace;
    state = std::max(state, rank.state);
  }
  const auto count = static_cast<uint64_t>(replicas);
  const uint64_t fixed = weights * static_cast<uint64_t>(copies) + workspace * count;
  const uint64_t available = budget.memory_available_bytes;
  PINION_ASSIGN(const size_t length, ResolveModelLength(model.spec, options));
  const uint64_t left = (available - std::min(available, fixed)) / count;
  PINION_ASSIGN(const size_t blocks, SizeKv(needs, options, length, left));
  return blocks * LargestBlockBytes(needs) + SizeStates(needs, options, left).all() * state;
}

}  // namespace pinion
