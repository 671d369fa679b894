#include "engine/run/start.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/decoder/pipeline.h"
#include "engine/exec/leading_executor.h"
#include "engine/host/runtime.h"
#include "engine/run/first_steps.h"
#include "engine/run/isa_choice.h"
#include "engine/run/kernel_choice.h"
#include "engine/run/kv_stage.h"
#include "engine/run/meet.h"
#include "engine/run/placement.h"
#include "engine/run/stages.h"
#include "engine/spec/stage.h"
#include "engine/weights/formats.h"
#include "engine/weights/shared_weights.h"
#include "engine/weights/weight_layout.h"
#include "kernels/e4m3.h"
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

// The activations that weight-only formats are multiplied with. They take int8 activations if that
// costs less than 0.01 nat of KL divergence, which holds for every format that
// tests/e2e/test_quantised.py measures (docs/accuracy.md). --dtype float32 asks for exact
// arithmetic: weights are then dequantised at loading.
std::optional<IntegerProduct> ResolveActivations(const EngineOptions& options,
                                                 kernels::Dtype dtype) {
  const bool exact = dtype == kernels::Dtype::kF32;
  if (options.activations == "int8" || (options.activations == "auto" && !exact))
    return IntegerProduct::kInt8;
  if (exact) return {};
  return IntegerProduct::kFloat;
}

// A log line on how quantised matrices are computed; empty if there are none.
std::string Describe(const FormatPlan& plan, kernels::Isa isa, const std::string& dtype) {
  std::vector<std::string> parts;
  if (const size_t count = plan.Count(IntegerProduct::kInt8))
    parts.push_back(StrCat(count, " stay integer and are multiplied with int8 activations by ",
                           kernels::IntTableFor(isa).name));
  if (const size_t count = plan.Count(IntegerProduct::kFloat))
    parts.push_back(StrCat(count, " stay integer and are converted to ", dtype,
                           " block by block during multiplication"));
  if (const size_t count = plan.Count(IntegerProduct::kE4m3))
    parts.push_back(StrCat(count, " stay in 8-bit floats and are multiplied by ",
                           kernels::E4m3TableFor(isa).name));
  if (plan.dequantised > 0)
    parts.push_back(StrCat(plan.dequantised, " are dequantised to ", dtype, " at loading"));
  return parts.empty() ? "" : StrCat("quantised matrices: ", Join(parts, ", "));
}

struct OpenedWeights {
  std::shared_ptr<const TensorSource> source;
  FormatPlan formats;
};

// Opens the weights and decides how they lie in memory.
Result<OpenedWeights> OpenAndPlanFormats(const EngineOptions& options, const ModelFiles& files) {
  PINION_ASSIGN(const kernels::Dtype dtype, ResolveDtype(options, files.spec));
  const bool int8_head = options.head_dtype == "int8" && files.spec.has_head();
  PINION_ASSIGN(auto opened, OpenWeights(files, options.seed));
  if (int8_head) opened = WithInt8Head(std::move(opened), files.spec);
  // What the scheme says on activations is all that planning takes from it.
  const auto scheme = options.activations == "float" ? std::nullopt : files.scheme;
  PINION_ASSIGN(FormatPlan formats,
                PlanFormats(files.spec, *opened, scheme,
                            {dtype, ResolveActivations(options, dtype), int8_head}));
  return OpenedWeights{std::move(opened), std::move(formats)};
}

bool Leads(const StartedModel& model) { return !model.world || model.world->process() == 0; }

size_t Processes(const StartedModel& model) { return model.world ? model.world->processes() : 1; }

// The processes that share a stage.
Status FormTeam(StartedModel& model) {
  if (!model.world) return {};
  PINION_ASSIGN(const StagePlaces places,
                StagePlaces::Of(model.options.partition(), model.world->processes()));
  if (model.options.pipeline_parallel == 1) {
    model.team = model.world;
    return {};
  }
  model.part = model.world->Part(places.StagesIn(model.world->process()).front());
  if (places.per_stage() > 1) model.team = model.part.get();
  return {};
}

// State passed from stage to stage of a start, besides the model.
struct StartState {
  Machine machine;
  Budget budget;
  DecoderOptions decoder;
  std::shared_ptr<const TensorSource> weights;
  std::vector<RankNeeds> needs;
  uint64_t shared_bytes = 0;  // of the weights, that were there before this process
  Stages stages;
};

Status MakePlanHere(StartedModel& model, StartState& start) {
  EngineInfo& info = model.info;
  PINION_ASSIGN(start.machine, ThisMachine());
  // Before the free memory is counted: what is packed in between counts as free, and as needed.
  if (model.options.weight_copy.is_shared())
    start.shared_bytes = SharedWeights::ResidentBytes(model.options.weight_copy.fd);
  PINION_ASSIGN(start.budget, BudgetHere(model.options, start.machine));
  PINION_ASSIGN(info.plan, PlanFor(OptionsOfPart(model.options, Processes(model)), start.machine,
                                   start.budget));
  PINION_ASSIGN(const IsaChoice choice, ChooseIsa(model.options.isa));
  model.isa = choice.isa;
  if (!kernels::LimitOneDnn(model.isa))
    return Fail(ErrorCode::kUnsupported,
                StrCat("this process has already used an ISA path other than ",
                       kernels::Name(model.isa), "; start one process per --isa"));
  info.isa = kernels::Name(model.isa);
  info.threads = info.plan.total_threads();
  info.processes = Processes(model);
  const Runtime runtime = LoadedRuntime();
  info.allocator = runtime.allocator;
  info.openmp = runtime.openmp;
  start.stages.Done("budget and plan",
                    StrCat(Describe(info.plan), "; isa ", info.isa, "; malloc ", info.allocator,
                           info.allocator == "glibc" ? " (none preloaded)" : " (preloaded)",
                           "; OpenMP ", info.openmp));
  for (const std::string& warning : info.plan.warnings) LogWarning(warning);
  auto granted =
      Grant(PoliciesFor(MemoryModeOf(model.options.memory_policy), start.machine, info.plan));
  model.memory = std::move(granted.policies);
  model.memory_refusal = std::move(granted.refusal);
  if (!model.memory_refusal.empty()) LogWarning(model.memory_refusal);
  if (!choice.warning.empty()) LogWarning(choice.warning);
  return {};
}

// A text whose tokens see each other in both directions is computed in one step.
Status FitWholeTexts(StartedModel& model) {
  size_t& length = model.info.max_model_len;
  const size_t most = LongestServed(model.files.spec, model.options, length);
  if (length == most) return {};
  if (model.options.max_model_len)
    return Fail(ErrorCode::kUsage,
                StrCat("--max-model-len ", length, " exceeds --max-num-batched-tokens ", most,
                       ", but the model's attention is bidirectional, so that it computes a text "
                       "in one step; raise the latter"));
  LogWarning(StrCat("texts are limited to --max-num-batched-tokens ", most,
                    " instead of the model's ", length, ": it computes each in one step"));
  length = most;
  return {};
}

// A stage has at least a layer.
Status CheckStages(const EngineOptions& options, const DecoderSpec& spec) {
  const size_t most = StageBegins(spec).size();
  if (static_cast<size_t>(options.pipeline_parallel) <= most) return {};
  const bool shared = most < spec.layer_specs.size();
  return Fail(
      ErrorCode::kUsage,
      StrCat("-pp ", options.pipeline_parallel, " asks for more stages than the model's ",
             spec.layers, " layers",
             shared ? StrCat(" can be cut into, some of which see others' keys and values") : "",
             "; use -pp ", most, " or less"));
}

// Finds the model and decides the types that it is computed in.
Status OpenModel(StartedModel& model, StartState& start) {
  EngineInfo& info = model.info;
  DecoderOptions& decoder = start.decoder;
  PINION_ASSIGN(model.files, FindModel(model.options.model));
  PINION_ASSIGN(info.task, ApplyTask(model.options.task, model.files));
  const DecoderSpec& spec = model.files.spec;
  const bool may_pool = model.options.pools || model.options.has_frontend || !Leads(model);
  if (info.task != ModelTask::kGenerate && !may_pool)
    return Fail(
        ErrorCode::kUnsupported,
        StrCat("'", model.options.model, "' (", spec.architecture, ") is to ", Name(info.task),
               " texts, and this command wants a model that generates; use "
               "'pinion embed', 'pinion rank' or 'pinion serve'"));
  PINION_TRY(CheckStages(model.options, spec));
  if (!spec.wrapper.empty())
    LogInfo(StrCat("running only the language model of ", spec.wrapper,
                   ": text in, text out; its other parts are not loaded"));
  if (info.task != ModelTask::kGenerate) model.options.prefix_caching = false;  // all is computed
  PINION_ASSIGN(info.max_model_len, ResolveModelLength(spec, model.options));
  if (!model.options.max_model_len)
    info.max_model_len = LongestText(FactsOf(model.files, info.task), info.max_model_len);
  PINION_TRY(FitWholeTexts(model));
  PINION_ASSIGN(OpenedWeights opened, OpenAndPlanFormats(model.options, model.files));
  start.weights = std::move(opened.source);
  model.formats = std::move(opened.formats);
  PINION_ASSIGN(decoder, DecoderOptionsFor(model.options, model.formats));
  info.dtype = kernels::Name(model.formats.dtype);
  if (const std::string kept = Describe(model.formats, model.isa, info.dtype); !kept.empty())
    LogInfo(kept);
  decoder.isa = model.isa;
  decoder.communicator = model.team;
  decoder.memory = model.memory;
  info.kv_dtype = decoder.cached();
  info.block_tokens = decoder.block_tokens;
  return {};
}

Status AgreeOnModel(StartedModel& model, StartState& start) {
  if (model.world || model.options.prefill.role != PrefillOptions::Role::kBoth)
    model.weights_hash = HashOf(*start.weights);
  if (!model.world) return {};
  model.info.link = MeasureLink(*model.world);
  const DecoderSpec& spec = model.files.spec;
  return Agree(*model.world,
               {{"Pinion", Version()},
                {"ISA path", model.info.isa},
                {"type", StrCat(model.info.dtype, ", KV ", kernels::Name(model.info.kv_dtype))},
                {"model", StrCat(spec.architecture, " with weights ", model.weights_hash)}});
}

// The leader chooses for all processes: if they multiplied differently, their routers could choose
// different experts.
Status ChooseCommonGemmKernels(StartedModel& model, StartState& start) {
  std::string asked = model.options.gemm_kernel;
  if (!Leads(model)) asked = BroadcastText(*model.world, "");
  const auto rules = ChooseGemmKernels(asked, model.isa, model.formats.dtype);
  if (model.world && Leads(model)) BroadcastText(*model.world, rules.value_or("none"));
  if (!rules) return Unexpected(rules.error());
  model.info.gemm = *rules;
  const bool measured = model.options.gemm_kernel == "auto";
  start.stages.Done("gemm kernels", StrCat(*rules, measured ? " (measured)" : " (given)"));
  return {};
}

Status ChooseKernels(StartedModel& model, StartState& start) {
  const DecoderSpec& spec = model.files.spec;
  PINION_TRY(ChooseCommonGemmKernels(model, start));
  const auto layouts = MeasuredLayouts(spec, model.formats, model.options.tensor_parallel);
  if (layouts.empty()) return {};
  start.decoder.int_prefetch = kernels::MeasureIntPrefetch(model.isa, layouts);
  start.stages.Done("integer kernels",
                    StrCat("weight prefetch ", start.decoder.int_prefetch.Describe()));
  return {};
}

Status CheckMemory(StartedModel& model, StartState& start) {
  start.needs = CountNeeds(model.files.spec, start.decoder, model.options.partition());
  if (model.world) {  // this process's alone
    const auto ranks = static_cast<ptrdiff_t>(start.needs.size() / Processes(model));
    const auto first = start.needs.begin() + static_cast<ptrdiff_t>(model.world->process()) * ranks;
    start.needs = {first, first + ranks};
  }
  LeaveOutPacked(start.shared_bytes, start.needs);
  EngineOptions granted = model.options;
  if (!model.memory_refusal.empty()) granted.memory_policy = "local";
  PINION_TRY(CheckCapacity(start.needs, granted, model.info.max_model_len, start.machine,
                           start.budget, model.info.plan));
  model.most_kv_bytes =
      MostKvBytes(start.needs, granted, start.machine, start.budget, model.info.plan);
  start.stages.Done("capacity check",
                    StrCat(FormatBytes(start.budget.memory_available_bytes), " of memory free"));
  return {};
}

// Options that have no part in how weights are packed differ between engines that share them.
std::string IdentityOf(const StartedModel& model, const TensorSource& weights) {
  EngineOptions same = model.options;
  same.threads_bind = "";
  same.prefill = {};
  same.weight_copy = {};
  return StrCat(Version(), " ", HashOf(weights), " ", HashOf(ToJson(same).Dump()));
}

// The memory that the weights are packed into, or lie in already, if several engines share it.
// Without it the engine has a copy of its own.
std::optional<SharedWeights> JoinSharedWeights(const StartedModel& model, const StartState& start) {
  if (!model.options.weight_copy.is_shared()) return {};
  SharedWeights::Layout layout;
  layout.identity = IdentityOf(model, *start.weights);
  const DecoderOptions& decoder = start.decoder;
  for (const RankNeeds& rank : CountNeeds(model.files.spec, decoder, model.options.partition()))
    layout.bytes.push_back(rank.weights);
  auto joined = SharedWeights::Join(model.options.weight_copy.fd, layout);
  if (joined) return std::move(*joined);
  LogWarning(StrCat("this engine packs weights of its own: ", joined.error().message));
  return {};
}

std::string HowLoaded(const StartedModel& model) {
  if (!model.options.weight_copy.is_shared()) return "";
  return model.mapped_weights ? ", mapped: another engine has packed them"
                              : StrCat(", for ", model.options.weight_copy.engines, " engines");
}

Status LoadAndPack(StartedModel& model, StartState& start) {
  EngineInfo& info = model.info;
  const int64_t load_start = NowNs();
  if (Leads(model)) {
    PINION_ASSIGN(model.pooler, Pooler::Load(model.files, info.task, *start.weights));
  }
  std::optional<SharedWeights> shared = JoinSharedWeights(model, start);
  if (shared) {
    start.decoder.shared.all = &*shared;
    model.mapped_weights = shared->packed();
  } else {
    model.options.weight_copy = {};
  }
  PINION_ASSIGN(auto teams,
                CpuExecutor::Load({model.files.spec, std::move(start.weights), info.plan,
                                   start.decoder, model.options.partition(), model.world}));
  if (shared) PINION_TRY(shared->Finish());
  start.decoder.shared = {};
  model.teams = teams.get();
  model.executor = std::move(teams);
  info.load_s = SecondsSince(load_start);
  info.weight_bytes = model.executor->memory().weight_bytes;
  if (model.world) info.weight_bytes = SumOf(*model.world, info.weight_bytes);
  const char* integers = model.formats.empty() ? "" : "integers and ";
  start.stages.Done("load and pack", StrCat(FormatBytes(info.weight_bytes), " of ", integers,
                                            info.dtype, HowLoaded(model)));
  return {};
}

}  // namespace

Result<kernels::Dtype> ResolveDtype(const EngineOptions& options, const DecoderSpec& spec) {
  const std::string& name = options.dtype == "auto" ? spec.checkpoint_dtype : options.dtype;
  for (auto dtype : {kernels::Dtype::kF32, kernels::Dtype::kBf16, kernels::Dtype::kF16})
    if (name == kernels::Name(dtype)) return dtype;
  return Fail(ErrorCode::kUsage, StrCat("the checkpoint's dtype is '", name,
                                        "'; choose --dtype bfloat16, float16 or float32"));
}

Result<PlannedModel> PlanModel(const EngineOptions& options) {
  PINION_ASSIGN(ModelFiles files, FindModel(options.model));
  PINION_TRY(ApplyTask(options.task, files));
  PINION_ASSIGN(OpenedWeights opened, OpenAndPlanFormats(options, files));
  return PlannedModel{std::move(files.spec), std::move(opened.formats)};
}

Result<DecoderOptions> DecoderOptionsFor(const EngineOptions& options, FormatPlan formats) {
  DecoderOptions decoder;
  decoder.formats = std::move(formats);
  PINION_ASSIGN(decoder.kv_dtype, ResolveKvDtype(options, decoder.formats.dtype));
  decoder.moe_prepack = options.moe_prepack;
  if (options.wire_dtype == "bfloat16") decoder.wire = kernels::Dtype::kBf16;
  decoder.max_rows = static_cast<size_t>(options.max_num_batched_tokens);
  decoder.block_tokens = static_cast<size_t>(options.block_size);
  return decoder;
}

Result<std::vector<RankNeeds>> NeedsFor(const EngineOptions& options, const PlannedModel& model) {
  PINION_ASSIGN(const DecoderOptions decoder, DecoderOptionsFor(options, model.formats));
  PINION_TRY(CheckStages(options, model.spec));
  return CountNeeds(model.spec, decoder, options.partition());
}

Result<Plan> PlanFor(const EngineOptions& options, const Machine& machine, const Budget& budget) {
  BindingRequest request;
  request.threads_bind = options.threads_bind;
  request.ranks = options.ranks();
  request.reserved_cpus = options.reserved_cpus;
  request.has_frontend = options.has_frontend;
  request.smt = options.smt == "on";
  if (options.threads_bind == "nobind") {  // the other modes ignore OMP_NUM_THREADS
    PINION_ASSIGN(request.nobind_threads, OmpNumThreads());
  }
  return MakePlan(machine, budget, request);
}

Result<StartedModel> StartModel(const EngineOptions& options) {
  PINION_TRY(Validate(options));
  StartedModel model;
  model.options = options;
  StartState start;
  PINION_ASSIGN(Communicator* const met, MeetProcesses(options));
  if (met) model.counted = std::make_unique<CountingCommunicator>(*met);
  model.world = model.counted.get();
  PINION_TRY(FormTeam(model));
  for (const auto stage :
       {MakePlanHere, OpenModel, AgreeOnModel, ChooseKernels, CheckMemory, LoadAndPack})
    PINION_TRY(Together(model.world, stage(model, start)));
  PINION_TRY(Together(model.world, MakeKvCache(model, start.needs, start.stages)));
  if (!Leads(model)) return model;
  EngineInfo& info = model.info;
  if (model.world) model.executor = LeadExecutor(std::move(model.executor), *model.world);
  if (!WarmUp(model, start.decoder))
    LogWarning(StrCat("every logit is NaN: the weights are broken, or too large for ", info.dtype,
                      "; try --dtype float32, or fetch the checkpoint again"));
  start.stages.Done("warm-up", "one step of prefill and decode");
  TimeSteps(model, start.decoder, start.stages);
  start.stages.Done("placement", FindPlacement(model));
  info.start_s = start.stages.total_s();
  info.stages = start.stages.entries();
  LogInfo(StrCat("ready after ", static_cast<int64_t>(info.start_s * 1000), " ms"));
  return model;
}

}  // namespace pinion
