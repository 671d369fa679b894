#include "harness/probe/probe.h"

#include <algorithm>
#include <set>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/probe/latency.h"
#include "harness/probe/plan.h"
#include "harness/probe/rate.h"
#include "harness/probe/threads.h"
#include "harness/probe/tile_rates.h"
#include "kernels/gemm_plan.h"
#include "kernels/offered_isas.h"
#include "kernels/probe.h"

namespace pinion::harness {
namespace {

using kernels::Dtype;
using kernels::Isa;
using kernels::Probes;

constexpr size_t kMostPairs = 128;
constexpr size_t kExpSteps = 500;  // about 10 us
constexpr uint64_t kLeastChainBytes = uint64_t{128} << 20;
constexpr size_t kCacheBiteBytes = size_t{256} << 10;

class Session {
 public:
  Session(const ProbeOptions& options, const std::function<void(const std::string&)>& progress)
      : options_(options), progress_(progress), start_ns_(NowNs()) {}

  Result<ProbeResult> Run() {
    PINION_TRY(Examine());
    ChooseSampling();
    PINION_TRY(MeasureThreads());
    PINION_TRY(MeasureOnTeams());
    PINION_TRY(MeasureNodes());
    ChooseGemmKernels();
    NameMissing();
    result_.elapsed_s = SecondsSince(start_ns_);
    return std::move(result_);
  }

 private:
  Status Examine() {
    PINION_ASSIGN(result_.machine, ThisMachine());
    if (!result_.machine.this_system)
      return Fail(ErrorCode::kUsage, StrCat("'", result_.machine.name,
                                            "' is not this machine and cannot be measured; unset "
                                            "HWLOC_SYNTHETIC and HWLOC_XMLFILE"));
    PINION_ASSIGN(result_.budget, ComputeBudget(result_.machine));
    PINION_ASSIGN(result_.plan, MakePlan(result_.machine, result_.budget, {}));
    cpus_ = result_.plan.ranks[0].cpus;
    for (int cpu : cpus_) nodes_.push_back(result_.machine.Find(cpu)->node);
    probes_ = &kernels::ProbesFor(kernels::OfferedIsas().isas.back());
    return {};
  }

  std::set<int> DistinctNodes() const { return {nodes_.begin(), nodes_.end()}; }

  // Divides the time among the figures.
  void ChooseSampling() {
    const size_t isas = kernels::OfferedIsas().isas.size(), nodes = DistinctNodes().size();
    const size_t rates = ThreadCounts(cpus_.size()).size() + 2 * (4 * isas + 3) +
                         2 * kernels::InstructionProbes().size() +
                         2 * kernels::TileProbes().size() * std::size(kTileOperands) + 4 +
                         (nodes > 1 ? nodes * nodes : 0) + 2;
    const double pairs = static_cast<double>(Pairs(cpus_, kMostPairs).size());
    // A tenth goes to pairs of cores, a fifth to touching memory and to teams that start.
    sampling_.sample_s = std::clamp(
        0.7 * options_.seconds / static_cast<double>(rates) / sampling_.samples, 0.002, 0.2);
    pair_sampling_.sample_s = std::clamp(
        0.1 * options_.seconds / std::max(1.0, pairs) / pair_sampling_.samples, 0.002, 0.05);
  }

  // ---- Between threads.
  Status MeasureThreads() {
    if (cpus_.size() < 2) return {};
    progress_("distance between cores");
    for (const auto& [cpu, other] : Pairs(cpus_, kMostPairs)) {
      PINION_ASSIGN(Team pair, Team::Start({cpu, other}));
      result_.distances.push_back({cpu, other, OneWayNs(pair, pair_sampling_)});
      if (!result_.wake_ns) result_.wake_ns = WakeNs(pair);
    }
    PINION_ASSIGN(Team team, Team::Start(cpus_));
    result_.barrier_ns = BarrierNs(team, sampling_);
    result_.fork_join_ns = ForkJoinNs(team, sampling_);
    return {};
  }

  // ---- Rates, by number of threads. One arena for all: part i lies near cpus_[i].
  Status MeasureOnTeams() {
    const uint64_t bytes = std::min<uint64_t>(options_.memory_bytes, AvailableMemoryBytes() / 4);
    PINION_ASSIGN(arena_, Arena::Allocate(cpus_.size(), bytes / cpus_.size()));
    if (arena_.bytes_per_part() == 0)
      return Fail(ErrorCode::kExhausted,
                  StrCat("only ", FormatBytes(AvailableMemoryBytes()),
                         " of memory are free, want 4 MiB a thread or more"));
    {
      PINION_ASSIGN(Team all_cpus, Team::Start(cpus_));
      arena_.Touch(all_cpus);
    }
    for (size_t threads : ThreadCounts(cpus_.size())) {
      const std::vector<int> cpus(cpus_.begin(), cpus_.begin() + static_cast<ptrdiff_t>(threads));
      progress_(Counted(threads, "thread"));
      PINION_ASSIGN(Team team, Team::Start(cpus));
      const std::vector<int> nodes(nodes_.begin(),
                                   nodes_.begin() + static_cast<ptrdiff_t>(threads));
      result_.reads.push_back(
          {cpus, BestStreamRate(team, sampling_, arena_, PartsOfThreads(nodes, nodes_),
                                probes_->stream)});
      if (threads != 1 && threads != cpus_.size()) continue;
      MeasureCaches(team, cpus);
      for (Isa isa : kernels::OfferedIsas().isas) MeasureCompute(team, kernels::ProbesFor(isa));
      MeasureInstructions(team);
      for (InstructionRate& rate : MeasureTiles(team, sampling_, arena_, CachesOf(cpus[0])))
        result_.instructions.push_back(std::move(rate));
      if (threads == 1) PINION_TRY(MeasureLatencies(team));
    }
    return {};
  }

  void MeasureCaches(Team& team, const std::vector<int>& cpus) {
    uint64_t nearer_bytes = 0;
    for (const Cache& cache : CachesOf(cpus[0])) {
      const uint64_t bytes = CacheReadBytes(cache, nearer_bytes, cpus);
      nearer_bytes = cache.bytes;
      if (bytes == 0 || bytes > arena_.bytes_per_part()) {
        Miss(StrCat("L", cache.level, " read by ", Counted(cpus.size(), "thread")),
             StrCat("half of each thread's share of ", FormatBytes(cache.bytes),
                    bytes == 0 ? " fits the cache before it"
                               : " is more than the memory that is read"));
        continue;
      }
      const uint64_t repeats = std::max<uint64_t>(1, kCacheBiteBytes / bytes);
      const double rate = team.BestRate(sampling_, [&](size_t thread) {
        for (uint64_t i = 0; i < repeats; ++i) probes_->read(arena_.part(thread), bytes);
        return repeats * bytes;
      });
      result_.caches.push_back(
          {cache.level, cache.bytes, bytes, static_cast<int>(team.size()), rate});
    }
  }

  void MeasureCompute(Team& team, const Probes& probes) {
    const int threads = static_cast<int>(team.size());
    const auto rate = [&](uint64_t (*probe)(size_t), size_t steps) {
      return team.BestRate(sampling_, [probe, steps](size_t) { return probe(steps); });
    };
    result_.compute.push_back(
        {probes.isa, Dtype::kF32, threads, rate(probes.multiply_f32, kMultiplySteps)});
    if (probes.multiply_bf16)
      result_.compute.push_back(
          {probes.isa, Dtype::kBf16, threads, rate(probes.multiply_bf16, kMultiplySteps)});
    if (const auto int8 = kernels::Int8Probe(probes.isa))
      result_.int8.push_back({probes.isa, threads, rate(int8, kMultiplySteps)});
    result_.exps.push_back({probes.isa, threads, rate(probes.exp_f32, kExpSteps)});
  }

  void MeasureInstructions(Team& team) {
    for (const kernels::InstructionProbe& probe : kernels::InstructionProbes()) {
      if (!probe.run) continue;
      const double rate =
          team.BestRate(sampling_, [&probe](size_t) { return probe.run(kMultiplySteps); });
      result_.instructions.push_back({probe.type, probe.name, static_cast<int>(team.size()), rate});
    }
  }

  Status MeasureLatencies(Team& team) {
    progress_("latencies");
    uint64_t last_bytes = 0;
    for (const Cache& cache : CachesOf(cpus_[0])) {
      const uint64_t bytes = CacheReadBytes(cache, last_bytes, {cpus_[0]});
      last_bytes = cache.bytes;
      if (bytes == 0 || bytes > options_.memory_bytes) continue;
      PINION_ASSIGN(const double ns, LatencyNs(team, sampling_, bytes));
      result_.latencies.push_back({cache.level, bytes, ns});
    }
    // Four times the last cache, so that it rarely hits.
    const uint64_t bytes =
        std::min(std::max(4 * last_bytes, kLeastChainBytes), options_.memory_bytes / 2);
    PINION_ASSIGN(const double ns, LatencyNs(team, sampling_, bytes));
    result_.latencies.push_back({0, bytes, ns});
    return {};
  }

  // oneDNN is among the candidates, and its ISA cap holds for the whole process.
  void ChooseGemmKernels() {
    progress_("gemm kernels");
    const Isa isa = kernels::OfferedIsas().isas.back();
    if (!kernels::LimitOneDnn(isa))
      return Miss("gemm kernels", "this process has already run another ISA path");
    for (Dtype dtype : {Dtype::kBf16, Dtype::kF16, Dtype::kF32})
      result_.gemm.push_back({dtype, kernels::Format(kernels::MeasureGemmRules(isa, dtype))});
  }

  // ---- Every node's threads from every node's memory.
  Status MeasureNodes() {
    if (DistinctNodes().size() < 2) {
      const ReadRate& all = result_.reads.back();
      result_.nodes.push_back(
          {nodes_[0], nodes_[0], static_cast<int>(all.cpus.size()), all.bytes_per_s});
      return {};
    }
    for (int cpu_node : DistinctNodes()) {
      progress_(StrCat("node ", cpu_node));
      std::vector<int> cpus;
      for (size_t i = 0; i < cpus_.size(); ++i)
        if (nodes_[i] == cpu_node) cpus.push_back(cpus_[i]);
      PINION_ASSIGN(Team team, Team::Start(cpus));
      for (int memory_node : DistinctNodes()) {
        auto parts = PartsOfThreads(std::vector<int>(cpus.size(), memory_node), nodes_);
        // If there are more threads than parts on the other node, they read the same parts, but
        // much later.
        for (size_t t = 0; t < parts.size(); ++t)
          if (parts[t].empty()) parts[t] = {parts[0].rbegin(), parts[0].rend()};
        result_.nodes.push_back({cpu_node, memory_node, static_cast<int>(cpus.size()),
                                 BestStreamRate(team, sampling_, arena_, parts, probes_->stream)});
      }
    }
    return {};
  }

  // ---- Figures that are missing.
  void Miss(std::string what, std::string why) {
    result_.missing.push_back({std::move(what), std::move(why)});
  }

  void NameMissing() {
    const kernels::IsaOffer& offer = kernels::OfferedIsas();
    const std::string lacks = "this CPU lacks it, or its operating system does not allow it";
    const std::string lacks_amx = offer.amx_refusal.empty() ? lacks : offer.amx_refusal;
    for (int i = 0; i < kernels::kIsaCount; ++i)
      if (const auto isa = static_cast<Isa>(i);
          std::find(offer.isas.begin(), offer.isas.end(), isa) == offer.isas.end())
        Miss(kernels::Name(isa), isa == Isa::kAmx ? lacks_amx : lacks);
    for (const kernels::InstructionProbe& probe : kernels::InstructionProbes())
      if (!probe.run)
        Miss(
            StrCat(probe.type, " by ", probe.name),
            std::string_view(probe.name).find("AMX") != std::string_view::npos ? lacks_amx : lacks);
    if (cpus_.size() < 2)
      Miss("barrier, fork and join, wake-up, distance",
           "they need two cores, and the budget has one");
    if (CachesOf(cpus_[0]).empty())
      Miss("cache bandwidth", "the operating system does not report the sizes of caches");
    for (const NumaNode& node : result_.machine.nodes)
      if (!DistinctNodes().contains(node.id))
        Miss(StrCat("node ", node.id),
             node.cpus.empty() ? "it has no CPUs" : "none of its CPUs is in the budget");
    if (result_.budget.cpu_quota &&
        *result_.budget.cpu_quota < static_cast<double>(result_.budget.cpus.size()))
      Miss("more threads", StrCat("the quota is ", *result_.budget.cpu_quota, " CPUs"));
    Miss("power, clock rate, cache misses",
         "they need hardware counters, which this probe does not use");
  }

  const ProbeOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  const int64_t start_ns_;
  SamplingPlan sampling_, pair_sampling_;
  const Probes* probes_ = nullptr;  // whose reads are used
  std::vector<int> cpus_, nodes_;   // thread i runs on cpus_[i], of node nodes_[i]
  Arena arena_;
  ProbeResult result_;
};

}  // namespace

Status Validate(const ProbeOptions& options) {
  if (options.seconds >= 1 && options.seconds <= 60) return {};
  return Fail(ErrorCode::kUsage, StrCat("--seconds is ", options.seconds, ", want 1 to 60"));
}

Result<ProbeResult> RunProbe(const ProbeOptions& options,
                             const std::function<void(const std::string&)>& progress) {
  PINION_TRY(Validate(options));
  return Session(options, progress).Run();
}

}  // namespace pinion::harness
