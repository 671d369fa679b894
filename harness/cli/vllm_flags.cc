#include "harness/cli/vllm_flags.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/run/settings.h"

namespace pinion::harness {
namespace {

enum class FlagHandling { kTaken, kIgnored, kRefused };

// Flags that share a reason. Of ignored ones a name that ends in "=" takes a value.
struct FlagGroup {
  FlagHandling handling;
  const char* why;
  const char* names;  // without "--", a space between them
};

constexpr char kGpu[] =
    "is for GPUs, and Pinion computes on CPUs; leave it out (memory for the KV cache is set by "
    "--kv-cache-space)";
constexpr char kGpuNames[] =
    "gpu-memory-utilization device-memory-utilization swap-space cpu-offload-gb cpu-offload-params "
    "num-gpu-blocks-override cuda-graph-sizes device-ids "
    "cudagraph-capture-sizes max-cudagraph-capture-size cudagraph-metrics "
    "sleep-mode-offload-cudagraph sleep-mode-backend enable-cumem-allocator "
    "enable-nccl-comm-suspend "
    "disable-nccl-for-dp-synchronization disable-custom-all-reduce enable-layerwise-nvtx-tracing "
    "ray-workers-use-nsight enable-flashinfer-autotune enable-shm-tensor-arena offload-backend "
    "offload-group-size offload-num-in-group offload-prefetch-step offload-params";

constexpr FlagGroup kGroups[] = {
    {FlagHandling::kRefused, kGpu, kGpuNames},
    {FlagHandling::kTaken, "",
     "dtype seed max-model-len kv-cache-dtype enable-prefix-caching served-model-name "
     "enable-sleep-mode tensor-parallel-size pipeline-parallel-size data-parallel-size block-size "
     "max-num-batched-tokens max-num-seqs "
     "max-num-queued-reqs max-num-queued-tokens shutdown-timeout sse-keep-alive-interval host port "
     "allow-credentials allowed-origins allowed-methods allowed-headers api-key ssl-keyfile "
     "ssl-certfile model chat-template trust-request-chat-template tool-call-parser "
     "reasoning-parser max-logprobs device default-chat-template-kwargs generation-config "
     "override-generation-config root-path"},
    {FlagHandling::kIgnored, "no code of a checkpoint is ever run", "trust-remote-code"},
    {FlagHandling::kIgnored, "long prompts are always read in chunks; --max-step-ms bounds a step",
     "enable-chunked-prefill no-enable-chunked-prefill long-prefill-token-threshold= "
     "max-long-partial-prefills= max-num-partial-prefills="},
    {FlagHandling::kIgnored, "there are no CUDA graphs to turn off", "enforce-eager"},
    {FlagHandling::kIgnored, "the checkpoint says how it is quantised", "quantization= q="},
    {FlagHandling::kIgnored, "the format follows from the model's files",
     "load-format= config-format="},
    {FlagHandling::kIgnored, "files are mapped, not copied",
     "safetensors-load-strategy= safetensors-prefetch-num-threads= "
     "safetensors-prefetch-block-size= max-parallel-loading-workers= use-tqdm-on-load= "
     "no-use-tqdm-on-load pt-load-map-location="},
    {FlagHandling::kIgnored,
     "processes of ranks are started by mpirun, and their network is MPI's; see docs/hosts.md",
     "distributed-executor-backend= distributed-timeout-seconds= cpu-distributed-timeout-seconds="},
    {FlagHandling::kIgnored,
     "every request has a priority, 0 unless it says otherwise; --max-step-ms orders equal ones",
     "scheduling-policy="},
    {FlagHandling::kIgnored, "steps are always prepared while the one before is computed",
     "async-scheduling no-async-scheduling"},
    {FlagHandling::kIgnored, "there is one tokenizer and one implementation of every model",
     "tokenizer-mode= model-impl= moe-backend= linear-backend= attention-backend= "
     "performance-mode= optimization-level= prefix-caching-hash-algo= mamba-backend= "
     "mamba-ssu-algorithm= gdn-prefill-backend= kda-prefill-backend= kda-decode-backend= "
     "use-replayssm no-use-replayssm replayssm-buffer-len= "
     "disable-hybrid-kv-cache-manager no-disable-hybrid-kv-cache-manager disable-cascade-attn"},
    {FlagHandling::kIgnored,
     "texts of requests are never logged; --access-log FILE logs their paths",
     "enable-log-requests no-enable-log-requests disable-log-requests max-log-len= "
     "disable-uvicorn-access-log disable-access-log-for-endpoints= uvicorn-log-level="},
    {FlagHandling::kIgnored, "figures are on /metrics, and cost nothing that could be saved",
     "disable-log-stats aggregate-engine-logging show-hidden-metrics-for-version="},
    {FlagHandling::kIgnored, "/load always tells how many requests there are",
     "enable-server-load-tracking"},
    {FlagHandling::kIgnored, "the usage in an answer always has them",
     "enable-prompt-tokens-details"},
    {FlagHandling::kRefused,
     "adds figures that Pinion does not have; leave it out: /metrics shows the ones it has",
     "kv-cache-metrics kv-cache-metrics-sample enable-mfu-metrics enable-per-request-metrics"},
    {FlagHandling::kIgnored,
     "the states of recurrent layers are kept behind prompts without being told",
     "mamba-block-size= mamba-cache-mode= enable-mamba-shared-prefix-checkpoint"},
    {FlagHandling::kIgnored, "of every checkpoint the language model alone is loaded",
     "language-model-only"},
    {FlagHandling::kIgnored, "/openapi.json is always there, and pages for it are not",
     "disable-fastapi-docs enable-offline-docs"},
    {FlagHandling::kIgnored, "every answer has X-Request-Id", "enable-request-id-headers"},
    {FlagHandling::kIgnored, "/tokenizer_info is always there", "enable-tokenizer-info-endpoint"},
    {FlagHandling::kRefused,
     "is for images, audio and video, which Pinion does not read; leave it out",
     "limit-mm-per-prompt enable-mm-embeds media-io-kwargs mm-processor-kwargs "
     "mm-processor-cache-gb mm-processor-cache-type mm-hasher-algorithm "
     "mm-shm-cache-max-object-size-mb mm-encoder-only mm-encoder-tp-mode mm-encoder-attn-backend "
     "mm-encoder-attn-dtype mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-path "
     "mm-encoder-fp8-scale-save-margin interleave-mm-strings skip-mm-profiling video-pruning-rate "
     "video-pruning-method mm-tensor-ipc mm-processor-device mm-ipc-gpu-memory-gb "
     "mm-device-do-normalize disable-chunked-mm-input "
     "allowed-local-media-path allowed-media-domains trust-request-mm-kwargs"},
    {FlagHandling::kRefused,
     "is for adapters; merge the adapter into its checkpoint and serve that",
     "enable-lora max-loras max-lora-rank lora-dtype enable-tower-connector-lora max-cpu-loras "
     "fully-sharded-loras lora-target-modules default-mm-loras specialize-active-lora "
     "enable-mixed-moe-lora-format enable-moe-shared-loras max-lora-cls-labels lora-modules"},
    {FlagHandling::kRefused,
     "is for speculative decoding, which Pinion does not have; leave it out",
     "speculative-config spec-method spec-model spec-tokens per-request-spec-decode-metrics "
     "diffusion-config"},
    {FlagHandling::kRefused,
     "divides a model or its requests in a way that Pinion does not have; use "
     "--tensor-parallel-size, --pipeline-parallel-size or --data-parallel-size",
     "data-parallel-rank data-parallel-start-rank "
     "data-parallel-size-local data-parallel-address data-parallel-rpc-port data-parallel-backend "
     "data-parallel-hybrid-lb data-parallel-external-lb data-parallel-multi-port-external-lb "
     "data-parallel-supervisor-port dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s "
     "dp-supervisor-probe-failure-threshold dp-sync-interval enable-expert-parallel "
     "enable-batch-sharded-sampling enable-ep-weight-filter all2all-backend enable-dbo ubatch-size "
     "enable-elastic-ep elastic-ep-max-dp-size dbo-decode-token-threshold "
     "dbo-prefill-token-threshold enable-eplb eplb-config expert-placement-strategy enable-hc-sp "
     "decode-context-parallel-size dcp-comm-backend dcp-q-replicate dcp-kv-cache-interleave-size "
     "cp-kv-cache-interleave-size prefill-context-parallel-size enable-scale-out headless "
     "master-addr master-port nnodes node-rank enable-fault-tolerance fault-tolerance-config"},
    {FlagHandling::kRefused,
     "binds processes and their memory to nodes; use --threads-bind and --reserved-cpus for the "
     "CPUs, --memory-policy for the memory",
     "numa-bind numa-bind-nodes numa-bind-cpus"},
    {FlagHandling::kRefused,
     "sets a number of processes; the front end has --frontend-workers threads",
     "api-server-count renderer-num-workers"},
    {FlagHandling::kRefused, "sizes the KV cache; use --kv-cache-space, such as 8GiB",
     "kv-cache-memory-bytes watermark watermark-config"},
    {FlagHandling::kRefused,
     "names a connector between engines; use --prefill-replicas within a server, --role between "
     "servers",
     "kv-transfer-config"},
    {FlagHandling::kRefused, "moves the KV cache elsewhere, which Pinion cannot; leave it out",
     "kv-events-config ec-transfer-config ec-manager-config kv-offloading-size "
     "kv-offloading-backend kv-sharing-fast-prefill swa-bounded-replay engram-config"},
    {FlagHandling::kRefused,
     "keeps some layers' KV in another type; --kv-cache-dtype is for all of them",
     "kv-cache-dtype-skip-layers"},
    {FlagHandling::kRefused, "changes the computation of a model; edit its config.json instead",
     "hf-overrides hf-config-path model-class-overrides rope-scaling rope-theta "
     "disable-sliding-window quantization-config allow-deprecated-quantization pooler-config "
     "use-fp64-gumbel"},
    {FlagHandling::kRefused, "selects the task of a model; use --task", "convert runner"},
    {FlagHandling::kRefused,
     "chooses other log-probabilities than those of the raw logits; leave it out", "logprobs-mode"},
    {FlagHandling::kRefused,
     "names files; Pinion downloads none: run `hf download` and name the folder",
     "revision code-revision tokenizer-revision hf-token download-dir ignore-patterns tokenizer "
     "skip-tokenizer-init model-loader-extra-config"},
    {FlagHandling::kRefused, "loads Python code, and Pinion runs none; leave it out",
     "logits-processors io-processor-plugin worker-cls worker-extension-cls scheduler-cls "
     "middleware tool-parser-plugin reasoning-parser-plugin"},
    {FlagHandling::kRefused,
     "rounds the states of recurrent layers, which are float32 here; leave it out",
     "mamba-cache-dtype mamba-ssm-cache-dtype enable-mamba-cache-stochastic-rounding "
     "mamba-cache-philox-rounds"},
    {FlagHandling::kRefused, "compiles or replaces kernels; Pinion's are built in, see --isa",
     "compilation-config attention-config kernel-config monokernel additional-config "
     "ir-op-priority "
     "sparse-indexer-topk-backend jit-monitor-mode jit-monitor-verbose aux-output-config"},
    {FlagHandling::kIgnored, "calls of tools are always parsed; see --tool-call-parser",
     "enable-auto-tool-choice"},
    {FlagHandling::kRefused, "changes how tools and reasoning are treated; leave it out",
     "exclude-tools-when-tool-choice-none tool-strict-level reasoning-effort-map "
     "cohere-is-reasoning-model cohere-format anthropic-disabled-thinking-effort"},
    {FlagHandling::kRefused,
     "names the marks of reasoning, which --reasoning-parser knows here; leave it out",
     "reasoning-config"},
    {FlagHandling::kRefused,
     "selects the grammar engine, which is always llguidance here; leave it out",
     "structured-outputs-config guided-decoding-backend"},
    {FlagHandling::kRefused, "changes the chat template; use --chat-template FILE",
     "chat-template-content-format response-role"},
    {FlagHandling::kRefused, "is asked for in each request here; leave it out",
     "return-tokens-as-token-ids enable-force-include-usage"},
    {FlagHandling::kRefused, "is a feature that Pinion does not have; leave it out",
     "enable-prompt-embeds enable-return-routed-experts return-sampling-mask tokens-only "
     "fingerprint-mode fingerprint-value enable-flash-late-interaction tool-server "
     "weight-transfer-config sleep-preserve-parameter-names fail-on-environ-validation"},
    {FlagHandling::kRefused, "logs answers, which Pinion never does; see --access-log",
     "enable-log-outputs enable-log-deltas"},
    {FlagHandling::kRefused, "configures vLLM's own logging; leave it out, and see --access-log",
     "log-error-stack logging-config log-level log-config-file enable-logging-iteration-details"},
    {FlagHandling::kRefused, "sends figures elsewhere; scrape /metrics, or use --trace FILE",
     "otlp-traces-endpoint collect-detailed-traces custom-histogram-buckets"},
    {FlagHandling::kRefused,
     "configures vLLM's profiler; use --profile-dir DIR and POST /start_profile",
     "profiler-config"},
    {FlagHandling::kRefused, "is another way to listen; use --host and --port behind a proxy",
     "grpc-port grpc uds"},
    {FlagHandling::kRefused,
     "is for certificates of clients; put a proxy in front that checks them",
     "ssl-ca-certs ssl-cert-reqs"},
    {FlagHandling::kRefused,
     "loads changed certificates, which Pinion does at a start alone; leave it out",
     "enable-ssl-refresh"},
    {FlagHandling::kRefused, "chooses ciphers, which Pinion leaves to OpenSSL; leave it out",
     "ssl-ciphers"},
    {FlagHandling::kRefused,
     "bounds a request's header; the bounds are built in, see --max-body-size",
     "h11-max-incomplete-event-size h11-max-header-count"},
    {FlagHandling::kRefused, "watches for engines that hang; here --engine-timeout does",
     "watchdog-config"},
    {FlagHandling::kRefused, "reads flags from a file; use a profile (pinion launch PROFILE)",
     "config"},
    {FlagHandling::kRefused,
     "steers vLLM's scheduler; here --max-num-batched-tokens, --max-num-seqs and --max-step-ms do",
     "max-num-scheduled-tokens max-num-active-seqs long-prefill-token-threshold-adaptive "
     "scheduler-reserve-full-isl prefill-schedule-interval stream-interval prefix-match-unit "
     "prefix-cache-retention-interval enable-trace-replay"},
};

std::vector<std::string> NamesOf(const FlagGroup& group) {
  std::vector<std::string> names;
  for (const std::string& name : Split(group.names, ' '))
    if (!name.empty())
      names.push_back((name.front() == 'q' && name.size() <= 2 ? "-" : "--") + name);
  return names;
}

// Explains to users who ask for a GPU why Pinion has none.
void ExplainDevice(CLI::App& command) {
  const auto check = [](const std::string& given) {
    const std::vector<std::string>& known = FindSetting("device")->names;
    if (std::find(known.begin(), known.end(), given) != known.end()) return std::string();
    return StrCat("'", given, "' is not available: Pinion computes on CPUs; use ",
                  Join(known, " or "), ", or leave it out");
  };
  command.get_option("--device")->check(check, "");
}

void Refuse(const std::string& flag, const char* why, CLI::App& command) {
  const auto refuse = [flag, why](const CLI::results_t&) -> bool {
    throw CLI::ValidationError(flag, why);
  };
  command.add_option(flag, refuse)->expected(0, 1)->group("");  // with or without a value
}

void Ignore(std::string flag, const char* why, CLI::App& command) {
  const auto tell = [why](const std::string& name) {
    std::fprintf(stderr, "pinion: %s makes no difference here: %s\n", name.c_str(), why);
  };
  if (!flag.ends_with('=')) {
    command.add_flag_callback(flag, [flag, tell] { tell(flag); })->group("");
    return;
  }
  flag.pop_back();
  command.add_option_function<std::string>(flag, [flag, tell](const auto&) { tell(flag); })
      ->group("");
}

bool Has(const CLI::App& command, std::string flag) {
  if (flag.ends_with('=')) flag.pop_back();
  return command.get_option_no_throw(flag) != nullptr;
}

}  // namespace

void RefuseGpuFlags(CLI::App& command) {
  for (const std::string& flag : NamesOf(kGroups[0])) Refuse(flag, kGpu, command);
  ExplainDevice(command);
}

void AddVllmFlags(CLI::App& command) {
  for (const FlagGroup& group : kGroups)
    for (const std::string& flag : NamesOf(group)) {
      if (group.handling == FlagHandling::kTaken || Has(command, flag)) continue;
      if (group.handling == FlagHandling::kIgnored) {
        Ignore(flag, group.why, command);
      } else {
        Refuse(flag, group.why, command);
      }
    }
}

std::string LongForm(const std::string& argument) {
  static const std::map<std::string, std::string> forms = {
      {"-tp", "--tensor-parallel-size"},   {"-pp", "--pipeline-parallel-size"},
      {"-dp", "--data-parallel-size"},     {"--data-parallel", "--data-parallel-size"},
      {"-ep", "--enable-expert-parallel"}, {"-asc", "--api-server-count"},
      {"-cc", "--compilation-config"},     {"-dcp", "--decode-context-parallel-size"}};
  const size_t end = argument.find('=');
  const auto form = forms.find(argument.substr(0, end));
  if (form == forms.end()) return argument;
  return end == std::string::npos ? form->second : form->second + argument.substr(end);
}

std::string VllmFlagsTable(const CLI::App& command) {
  std::map<std::string, std::string> rows;
  for (const FlagGroup& group : kGroups)
    for (std::string flag : NamesOf(group)) {
      if (flag.ends_with('=')) flag.pop_back();
      const CLI::Option* option = command.get_option_no_throw(flag);
      const bool is_ours = option && !option->get_group().empty();
      const char* handling = is_ours                                    ? "taken"
                             : group.handling == FlagHandling::kIgnored ? "ignored"
                                                                        : "refused";
      rows[flag] = StrCat("| `", flag, "` | ", handling, " | ", is_ours ? "" : group.why, " |\n");
    }
  std::string table = "| flag | here | because |\n|---|---|---|\n";
  for (const auto& [flag, row] : rows) table += row;
  return table;
}

}  // namespace pinion::harness
