#include "engine/run/cpu_device.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/comm/world.h"
#include "engine/exec/cpu/cpu_executor.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/host/memory_policy.h"
#include "engine/host/runtime.h"
#include "engine/run/isa_choice.h"
#include "engine/run/join_processes.h"
#include "engine/run/kernel_choice.h"
#include "engine/weights/shared_weights.h"
#include "kernels/integer_prefetch.h"

namespace pinion {
namespace {

std::string Describe(const Plan& plan) {
  std::vector<std::string> parts;
  for (const RankPlan& rank : plan.ranks)
    parts.push_back(rank.cpus.empty()
                        ? StrCat("rank ", rank.rank, ": ", rank.threads,
                                 rank.threads == 1 ? " thread" : " threads", ", not pinned")
                        : StrCat("rank ", rank.rank, ": cpus ", FormatCpuList(rank.cpus)));
  if (!plan.frontend_cpus.empty())
    parts.push_back(StrCat("front end: cpus ", FormatCpuList(plan.frontend_cpus)));
  return Join(parts, "; ");
}

// The leader chooses for all processes: if they multiplied differently, their routers could choose
// different experts.
Status ChooseCommonGemmKernels(StartedModel& model, Stages& stages) {
  std::string asked = model.options.gemm_kernel;
  if (!model.leads()) asked = BroadcastText(*model.world, "");
  const auto rules = ChooseGemmKernels(asked, model.isa, model.formats.dtype);
  if (model.world && model.leads()) BroadcastText(*model.world, rules.value_or("none"));
  if (!rules) return Unexpected(rules.error());
  model.info.gemm = *rules;
  const bool measured = model.options.gemm_kernel == "auto";
  stages.Done("gemm kernels", StrCat(*rules, measured ? " (measured)" : " (given)"));
  return {};
}

// Sizes and times of the files that the weights come from: a checkpoint that was replaced in its
// place differs by them, even if HashOf, which reads each tensor's first row, tells no difference.
std::string StampsOf(const ModelFiles& files) {
  namespace fs = std::filesystem;
  std::vector<std::string> stamps;
  const auto add = [&stamps](const fs::path& path) {
    std::error_code size_error, time_error;
    const auto bytes = fs::file_size(path, size_error);
    const auto time = fs::last_write_time(path, time_error);
    if (!size_error && !time_error)
      stamps.push_back(StrCat(path.string(), " ", bytes, " ", time.time_since_epoch().count()));
  };
  if (files.gguf) add(files.name);
  std::error_code none;
  if (!files.folder.empty())
    for (const auto& entry : fs::directory_iterator(files.folder, none)) add(entry.path());
  std::sort(stamps.begin(), stamps.end());
  return Join(stamps, "; ");
}

// Options that have no part in how weights are packed differ between engines that share them.
std::string IdentityOf(const StartedModel& model, const TensorSource& weights) {
  EngineOptions same = model.options;
  same.threads_bind = "";
  same.prefill = {};
  same.weight_copy = {};
  return StrCat(Version(), " ", HashOf(weights), " ", HashOf(StampsOf(model.files)), " ",
                HashOf(ToJson(same).Dump()));
}

// The memory that the weights are packed into, or lie in already, if several engines share it.
// Without such memory the engine has a copy of its own. kUnsupported: others have packed something
// else, so that they answer by another model.
Result<std::optional<SharedWeights>> JoinSharedWeights(const StartedModel& model,
                                                       const DecoderOptions& options,
                                                       const TensorSource& weights) {
  if (!model.options.weight_copy.is_shared()) return std::nullopt;
  SharedWeights::Layout layout;
  layout.identity = IdentityOf(model, weights);
  for (const RankNeeds& rank : CountNeeds(model.files.spec, options, model.options.partition()))
    layout.bytes.push_back(rank.weights);
  auto joined = SharedWeights::Join(model.options.weight_copy.fd, layout);
  if (joined) return std::move(*joined);
  if (joined.error().code == ErrorCode::kUnsupported) return Unexpected(std::move(joined).error());
  LogWarning(StrCat("this engine packs weights of its own: ", joined.error().message));
  return std::nullopt;
}

class CpuDevice final : public Device {
 public:
  Status Prepare(StartedModel& model, Stages& stages) override;
  Status ChooseKernels(StartedModel& model, DecoderOptions& options, Stages& stages) override;
  Result<std::vector<RankNeeds>> CheckMemory(StartedModel& model, const DecoderOptions& options,
                                             Stages& stages) override;
  Result<std::unique_ptr<Executor>> Load(StartedModel& model, const DecoderOptions& options,
                                         std::shared_ptr<const TensorSource> weights) override;
  uint64_t FreeForCache(const StartedModel& model) override {
    return std::min(LeftByFrontEnd(model.options, AvailableMemoryHere()), most_kv_bytes_);
  }

 private:
  // Sets budget_ and the plan of this process's ranks.
  Result<CpuTime> PlanCpus(StartedModel& model);
  // Plans, and sets the ranks' shares if processes differ and that is accepted.
  Status ShareByCpuTime(StartedModel& model);

  Machine machine_;
  Budget budget_;
  uint64_t shared_bytes_ = 0;  // of the weights, that were there before this process
  uint64_t most_kv_bytes_ = std::numeric_limits<uint64_t>::max();  // MostKvBytes
};

Result<CpuTime> CpuDevice::PlanCpus(StartedModel& model) {
  PINION_ASSIGN(const Budget host, ComputeBudget(machine_));
  PINION_ASSIGN(budget_, BudgetHere(model.options, machine_));
  PINION_ASSIGN(model.info.plan,
                PlanFor(OptionsOfPart(model.options, model.processes()), machine_, budget_));
  return CpuTimeOf(host, Launched().value_or(LaunchedProcess{}).locals, budget_, model.info.plan);
}

Status CpuDevice::ShareByCpuTime(StartedModel& model) {
  const Result<CpuTime> time = PlanCpus(model);
  if (!model.world) return time ? Status{} : Unexpected(time.error());
  const bool accept = model.options.unequal_hosts == "accept";
  const char* const accepted =
      model.team ? "every process computes a part of its layers in proportion to it, in whole "
                   "heads and blocks of 64 columns"
                 : "every process computes layers of its own, about as many as every other, so "
                   "that the one with the least sets the pace of every step";
  PINION_TRY(AgreeOnCpuTime(*model.world, time, accept ? accepted : nullptr));
  if (!accept || !model.team) return {};
  const size_t each = static_cast<size_t>(model.options.tensor_parallel) / model.team->processes();
  model.shares = SharesByCpuTime(*model.team, *time, each);
  std::vector<std::string> parts;
  for (int rank = 0; rank < model.shares->ranks(); ++rank)
    parts.push_back(StrCat(model.shares->Of(100, rank).size(), " %"));
  if (model.leads()) LogInfo(StrCat("parts of a layer, by rank: ", Join(parts, ", ")));
  return {};
}

Status CpuDevice::Prepare(StartedModel& model, Stages& stages) {
  EngineInfo& info = model.info;
  auto machine = ThisMachine();
  PINION_TRY(Together(model.world, machine ? Status{} : Unexpected(machine.error())));
  machine_ = std::move(*machine);
  // Before the free memory is counted: weights packed in between count as free, and as needed.
  if (model.options.weight_copy.is_shared())
    shared_bytes_ = SharedWeights::ResidentBytes(model.options.weight_copy.fd);
  PINION_TRY(ShareByCpuTime(model));
  PINION_ASSIGN(const IsaChoice choice, ChooseIsa(model.options.isa));
  model.isa = choice.isa;
  if (!kernels::LimitOneDnn(model.isa))
    return Fail(ErrorCode::kUnsupported,
                StrCat("this process has already used an ISA path other than ",
                       kernels::Name(model.isa), "; start one process per --isa"));
  info.isa = kernels::Name(model.isa);
  info.threads = info.plan.total_threads();
  const Runtime runtime = LoadedRuntime();
  info.allocator = runtime.allocator;
  info.openmp = runtime.openmp;
  stages.Done("budget and plan",
              StrCat(Describe(info.plan), "; isa ", info.isa, "; malloc ", info.allocator,
                     info.allocator == "glibc" ? " (none preloaded)" : " (preloaded)", "; OpenMP ",
                     info.openmp));
  for (const std::string& warning : info.plan.warnings) LogWarning(warning);
  auto granted = Grant(PoliciesFor(MemoryModeOf(model.options.memory_policy), machine_, info.plan));
  model.memory = std::move(granted.policies);
  model.memory_refusal = std::move(granted.refusal);
  if (!model.memory_refusal.empty()) LogWarning(model.memory_refusal);
  if (!choice.warning.empty()) LogWarning(choice.warning);
  return {};
}

Status CpuDevice::ChooseKernels(StartedModel& model, DecoderOptions& options, Stages& stages) {
  const DecoderSpec& spec = model.files.spec;
  PINION_TRY(ChooseCommonGemmKernels(model, stages));
  const int ranks = model.options.tensor_parallel;
  const size_t first =
      model.team ? model.team->process() * static_cast<size_t>(ranks) / model.team->processes() : 0;
  const auto layouts =
      MeasuredLayouts(spec, model.formats, options.SharesOf(ranks), static_cast<int>(first));
  if (layouts.empty()) return {};
  options.int_prefetch = kernels::MeasureIntPrefetch(model.isa, layouts);
  stages.Done("integer kernels", StrCat("weight prefetch ", options.int_prefetch.Describe()));
  return {};
}

Result<std::vector<RankNeeds>> CpuDevice::CheckMemory(StartedModel& model,
                                                      const DecoderOptions& options,
                                                      Stages& stages) {
  std::vector<RankNeeds> needs = NeedsHere(model, options);
  LeaveOutPacked(shared_bytes_, needs);
  EngineOptions granted = model.options;
  if (!model.memory_refusal.empty()) granted.memory_policy = "local";
  PINION_TRY(
      CheckCapacity(needs, granted, model.info.max_model_len, machine_, budget_, model.info.plan));
  most_kv_bytes_ = MostKvBytes(needs, granted, machine_, budget_, model.info.plan);
  stages.Done("capacity check",
              StrCat(FormatBytes(budget_.memory_available_bytes), " of memory free"));
  return needs;
}

Result<std::unique_ptr<Executor>> CpuDevice::Load(StartedModel& model,
                                                  const DecoderOptions& options,
                                                  std::shared_ptr<const TensorSource> weights) {
  DecoderOptions own = options;
  PINION_ASSIGN(std::optional<SharedWeights> shared, JoinSharedWeights(model, options, *weights));
  if (shared) {
    own.shared.all = &*shared;
    model.mapped_weights = shared->packed();
  } else {
    model.options.weight_copy = {};
  }
  PINION_ASSIGN(auto teams,
                CpuExecutor::Load({model.files.spec, std::move(weights), model.info.plan,
                                   std::move(own), model.options.partition(), model.world}));
  if (shared) PINION_TRY(shared->Finish());
  model.teams = teams.get();
  return std::unique_ptr<Executor>(std::move(teams));
}

}  // namespace

std::unique_ptr<Device> MakeCpuDevice() { return std::make_unique<CpuDevice>(); }

}  // namespace pinion
