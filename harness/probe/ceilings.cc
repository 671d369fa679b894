#include "harness/probe/ceilings.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>

#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "harness/probe/rate.h"
#include "kernels/probe.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kLeastStreamBytes = uint64_t{256} << 20;
constexpr uint64_t kUnknownStreamBytes = uint64_t{1} << 30;  // if the size of the caches is unknown
constexpr SamplingPlan kReadSampling{4, 0.025}, kComputeSampling{4, 0.0125};
// For probes between the steps of a load, which must be short.
constexpr SamplingPlan kBriefReadSampling{2, 0.0125};

class TeamCeilings final : public CeilingProbe {
 public:
  TeamCeilings(Team team, Arena arena, const kernels::Probes& probes, kernels::Dtype dtype,
               bool integers)
      : team_(std::move(team)),
        arena_(std::move(arena)),
        probes_(probes),
        dtype_(dtype),
        integers_(integers) {
    for (size_t i = 0; i < team_.size(); ++i) own_parts_.push_back({i});
  }

  Ceilings Measure() override {
    if (!touched_) arena_.Touch(team_);
    touched_ = true;
    Ceilings ceilings;
    ceilings.read_bytes_per_s = ReadRate(kReadSampling);
    ceilings.flops_per_s = Rate(probes_.multiply_f32);
    // bfloat16's own instruction is not always faster than widening to float32.
    if (dtype_ == kernels::Dtype::kBf16 && probes_.multiply_bf16)
      ceilings.flops_per_s = std::max(ceilings.flops_per_s, Rate(probes_.multiply_bf16));
    if (integers_) {
      const auto int8 = kernels::Int8Probe(probes_.isa);
      ceilings.int8_ops_per_s = int8 ? Rate(int8) : ceilings.flops_per_s;
    }
    return ceilings;
  }

  double ReadRate() override { return ReadRate(kBriefReadSampling); }

  uint64_t memory_bytes() const override { return arena_.parts() * arena_.bytes_per_part(); }

 private:
  double ReadRate(SamplingPlan sampling) {
    return BestStreamRate(team_, sampling, arena_, own_parts_, probes_.stream);
  }

  double Rate(uint64_t (*multiply)(size_t)) {
    return team_.BestRate(kComputeSampling,
                          [multiply](size_t) { return multiply(kMultiplySteps); });
  }

  Team team_;
  Arena arena_;
  const kernels::Probes& probes_;
  const kernels::Dtype dtype_;
  const bool integers_;
  std::vector<std::vector<size_t>> own_parts_;  // thread t reads part t
  bool touched_ = false;
};

// How many L3 domains the plan's threads may run in.
size_t DomainsOf(const Machine& machine, const Plan& plan) {
  std::set<int> domains;
  for (const RankPlan& rank : plan.ranks)
    for (const Cpu& cpu : machine.cpus)
      if (rank.cpus.empty() || std::ranges::find(rank.cpus, cpu.id) != rank.cpus.end())
        domains.insert(cpu.l3);
  return domains.size();
}

}  // namespace

uint64_t StreamBytes(const Machine& machine, const Plan& plan, uint64_t free_bytes) {
  uint64_t wanted = kUnknownStreamBytes;
  if (machine.l3_bytes > 0)
    wanted = std::max(kLeastStreamBytes, 16 * machine.l3_bytes * DomainsOf(machine, plan));
  return std::clamp(free_bytes / 2, wanted / 8, wanted);
}

Result<std::unique_ptr<CeilingProbe>> CeilingProbe::Start(const Plan& plan, kernels::Isa isa,
                                                          kernels::Dtype dtype, bool integers) {
  const char* wanted = std::getenv("PINION_CEILINGS");
  if (wanted && std::string_view(wanted) == "0")
    return Fail(ErrorCode::kUnsupported, "the environment variable PINION_CEILINGS is 0");
  PINION_ASSIGN(const Machine machine, ThisMachine());
  const uint64_t free_bytes = AvailableMemoryBytes();
  const uint64_t bytes = StreamBytes(machine, plan, free_bytes);
  if (free_bytes < 2 * bytes)
    return Fail(ErrorCode::kExhausted,
                StrCat("measuring bandwidth takes ", FormatBytes(bytes), ", and only ",
                       FormatBytes(free_bytes), " are free; lower --kv-cache-space"));
  PINION_ASSIGN(Team team, Team::Start(plan));
  PINION_ASSIGN(Arena arena, Arena::Allocate(team.size(), bytes / team.size()));
  return std::make_unique<TeamCeilings>(std::move(team), std::move(arena), kernels::ProbesFor(isa),
                                        dtype, integers);
}

}  // namespace pinion::harness
