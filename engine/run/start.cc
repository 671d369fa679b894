#include "engine/run/start.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/rounded_tensor.h"
#include "engine/checkpoint/unread_layers.h"
#include "engine/decoder/stage_places.h"
#include "engine/exec/leading_executor.h"
#include "engine/run/config_agreement.h"
#include "engine/run/device.h"
#include "engine/run/first_steps.h"
#include "engine/run/join_processes.h"
#include "engine/run/kv_stage.h"
#include "engine/run/not_finite.h"
#include "engine/run/placement.h"
#include "engine/run/stages.h"
#include "engine/spec/stage.h"
#include "engine/weights/formats.h"
#include "engine/weights/weight_layout.h"
#include "kernels/e4m3.h"

namespace pinion {
namespace {

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
  if (const size_t count = plan.Count(IntegerProduct::kE4m3)) {
    const size_t rounded = plan.CountRoundedToE4m3();
    parts.push_back(StrCat(
        count, " stay in 8-bit floats and are multiplied by ", kernels::E4m3TableFor(isa).name,
        rounded > 0 ? StrCat(" (", rounded, " with activations rounded to 8-bit floats)") : ""));
  }
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
  // Planning takes nothing from the scheme but its rule for activations.
  const auto scheme = options.activations == "float" ? std::nullopt : files.scheme;
  PINION_ASSIGN(FormatPlan formats,
                PlanFormats(files.spec, *opened, scheme,
                            {dtype, ResolveActivations(options, dtype), int8_head}));
  return OpenedWeights{std::move(opened), std::move(formats)};
}

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
  std::unique_ptr<Device> device;
  DecoderOptions decoder;
  std::shared_ptr<const TensorSource> weights;
  std::vector<RankNeeds> needs;
  Stages stages;
};

// Makes the device, and checks the options by this program alone: other processes are asked later.
Status TakeDevice(const EngineOptions& options, std::span<const DeviceRow> devices,
                  StartState& start) {
  PINION_ASSIGN(start.device, MakeDevice(options.device, devices));
  EngineOptions known = options;
  known.device = "auto";  // the name is one of `devices`, which is all that matters here
  return Validate(known);
}

Status Prepare(StartedModel& model, StartState& start) {
  model.info.processes = model.processes();
  return start.device->Prepare(model, start.stages);
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
  const bool may_pool = model.options.pools || model.options.has_frontend || !model.leads();
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
  if (const auto unread = UnreadLayers(model.files, *start.weights); unread && model.leads())
    LogWarning(*unread);
  model.formats = std::move(opened.formats);
  PINION_ASSIGN(decoder, DecoderOptionsFor(model.options, model.formats));
  info.dtype = kernels::Name(model.formats.dtype);
  if (const std::string kept = Describe(model.formats, model.isa, info.dtype); !kept.empty())
    LogInfo(kept);
  decoder.isa = model.isa;
  decoder.communicator = model.team;
  decoder.shares = model.shares;
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
  PINION_TRY(AgreeOnIdentity(
      *model.world, {.isa = model.info.isa,
                     .types = StrCat(model.info.dtype, ", KV ", kernels::Name(model.info.kv_dtype),
                                     ", --wire-dtype ", model.options.wire_dtype),
                     .model = StrCat(spec.architecture, " with weights ", model.weights_hash)}));
  return AgreeOnConfig(*model.world, model.files.gguf ? "the file's header" : "config.json",
                       ConfigOf(model.files));
}

Status ChooseKernels(StartedModel& model, StartState& start) {
  return start.device->ChooseKernels(model, start.decoder, start.stages);
}

Status CheckMemory(StartedModel& model, StartState& start) {
  PINION_ASSIGN(start.needs, start.device->CheckMemory(model, start.decoder, start.stages));
  return {};
}

std::string HowLoaded(const StartedModel& model) {
  if (!model.options.weight_copy.is_shared()) return "";
  return model.mapped_weights ? ", mapped: another engine has packed them"
                              : StrCat(", for ", model.options.weight_copy.engines, " engines");
}

Status LoadPooler(StartedModel& model, StartState& start) {
  if (!model.leads()) return {};
  PINION_ASSIGN(model.pooler, Pooler::Load(model.files, model.info.task, *start.weights));
  return {};
}

Status LoadAndPack(StartedModel& model, StartState& start) {
  EngineInfo& info = model.info;
  const int64_t load_start = NowNs();
  // The others, which load without it, would wait in vain for a leader that lacks it.
  PINION_TRY(Together(model.world, LoadPooler(model, start)));
  PINION_ASSIGN(model.executor, start.device->Load(model, start.decoder, std::move(start.weights)));
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
  return StartModel(options, Devices());
}

Result<StartedModel> StartModel(const EngineOptions& options, std::span<const DeviceRow> devices) {
  StartState start;
  StartedModel model;
  model.options = options;
  PINION_ASSIGN(Communicator* const met,
                JoinProcesses(options, TakeDevice(options, devices, start)));
  if (met) model.counted = std::make_unique<CountingCommunicator>(*met);
  model.world = model.counted.get();
  PINION_TRY(FormTeam(model));
  for (const auto stage :
       {Prepare, OpenModel, AgreeOnModel, ChooseKernels, CheckMemory, LoadAndPack})
    PINION_TRY(Together(model.world, stage(model, start)));
  PINION_TRY(Together(model.world, MakeKvCache(model, start.needs,
                                               start.device->FreeForCache(model), start.stages)));
  if (!model.leads()) return model;
  EngineInfo& info = model.info;
  if (model.world) model.executor = LeadExecutor(std::move(model.executor), *model.world);
  if (!WarmUp(model, start.decoder))
    LogWarning(NotFinite("every logit is NaN, so the logits are", info.dtype));
  start.stages.Done("warm-up", "one step of prefill and decode");
  TimeCut(model, start.decoder, start.stages);
  TimeSteps(model, start.decoder, start.stages);
  start.stages.Done("placement", FindPlacement(model));
  info.start_s = start.stages.total_s();
  info.stages = start.stages.entries();
  LogInfo(StrCat("ready after ", static_cast<int64_t>(info.start_s * 1000), " ms"));
  return model;
}

}  // namespace pinion
