#include "engine/serve/engine_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <optional>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/metrics_maker.h"

namespace pinion {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// vLLM's boundaries, so that its dashboards fit.
const Buckets kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                    0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                    20,    40,    80,   160,  640,  2560};
const Buckets kTokenBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                               0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Buckets kRequestBuckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Buckets kStepBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kChoiceBuckets = {1, 2, 5, 10, 20};
const Buckets kPreemptionBuckets = {1, 2, 3, 4, 5, 10, 20};

// 1, 2, 5, 10, ... up to the longest sequence.
Buckets LengthBuckets(size_t longest) {
  Buckets at;
  for (size_t power = 1;; power *= 10) {
    for (const size_t factor : {1, 2, 5}) {
      if (factor * power > longest) return at;
      at.push_back(static_cast<double>(factor * power));
    }
  }
}

// Metrics of events that do not happen here: a dashboard's panels show 0 instead of nothing.
constexpr std::pair<const char*, const char*> kNeverCounted[] = {
    {"vllm:external_prefix_cache_queries_total", "Tokens looked up in other instances: none."},
    {"vllm:external_prefix_cache_hits_total", "Tokens found in other instances: none."},
    // The cache gives whole blocks before a prompt's last one, and all that it gives is used.
    {"vllm:prompt_tokens_recomputed_total", "Cached prompt tokens that were computed again: none."},
    {"vllm:mm_cache_queries_total", "Images looked up in a cache: none."},
    {"vllm:mm_cache_hits_total", "Images found in a cache: none."},
};

}  // namespace

struct EngineMetrics::State {
  State(prometheus::Registry& registry, const std::string& model, size_t engine)
      : make(registry, {{"model_name", model}, {"engine", StrCat(engine)}}),
        make_own(registry, {{"model_name", model}}) {
    for (const char* source : {"host", "disk", "external_unspecified"})
      cached_by_source.Add({{"source", source}});
    waiting_by_reason.Add({{"reason", "deferred"}});
    for (const auto& [name, help] : kNeverCounted) make.Counter(name, help);
    for (const char* reason : {"stop", "length", "abort", "error", "repetition"})
      finished[reason] = &finished_family.Add({{"finished_reason", reason}});
  }

  void ShowWaiting() {
    waiting.Set(static_cast<double>(engine_waiting + front_waiting));
    waiting_capacity.Set(waiting.Value());
  }

  MetricsMaker make, make_own;  // vLLM's, of this engine; Pinion's, of all
  prometheus::Gauge& running = make.Gauge("vllm:num_requests_running", "Sequences being computed.");
  prometheus::Gauge& waiting =
      make.Gauge("vllm:num_requests_waiting", "Sequences waiting to be scheduled.");
  MetricsOf<prometheus::Gauge> waiting_by_reason =
      make.Gauges("vllm:num_requests_waiting_by_reason", "Sequences waiting, by reason.");
  prometheus::Gauge& waiting_capacity = waiting_by_reason.Add({{"reason", "capacity"}});
  MetricsOf<prometheus::Gauge> sleep =
      make.Gauges("vllm:engine_sleep_state",
                  "awake: 0 while the engine sleeps; weights_offloaded: level 1; discard_all: 2.");
  prometheus::Gauge& awake = sleep.Add({{"sleep_state", "awake"}});
  prometheus::Gauge& sleep_1 = sleep.Add({{"sleep_state", "weights_offloaded"}});
  prometheus::Gauge& sleep_2 = sleep.Add({{"sleep_state", "discard_all"}});
  MetricsOf<prometheus::Gauge> cache_config =
      make.Gauges("vllm:cache_config_info", "The KV cache's configuration, as labels.");
  prometheus::Gauge& kv_usage =
      make.Gauge("vllm:kv_cache_usage_perc", "Fraction of KV blocks in use; 1 means all.");
  prometheus::Gauge& gpu_usage =
      make.Gauge("vllm:gpu_cache_usage_perc",
                 "Older name of vllm:kv_cache_usage_perc; does not refer to a GPU.");
  FromTotals preemptions{make.Counter("vllm:num_preemptions_total",
                                      "Sequences returned to the queue to free KV blocks.")};
  FromTotals prompt_tokens{
      make.Counter("vllm:prompt_tokens_total",
                   "Prompt tokens, computed, found in the prefix cache or taken from "
                   "another engine.")};
  MetricsOf<prometheus::Counter> by_source =
      make.Counters("vllm:prompt_tokens_by_source_total", "Prompt tokens by their source.");
  FromTotals computed_tokens{by_source.Add({{"source", "local_compute"}})};
  FromTotals external_tokens{by_source.Add({{"source", "external_kv_transfer"}})};
  FromTotals hit_tokens{by_source.Add({{"source", "local_cache_hit"}})};
  FromTotals cached_tokens{
      make.Counter("vllm:prompt_tokens_cached_total",
                   "Prompt tokens found in the prefix cache or taken from another engine.")};
  MetricsOf<prometheus::Counter> cached_by_source =
      make.Counters("vllm:prompt_tokens_cached_by_source_total",
                    "The same tokens by where their keys and values lay: in memory, or (p2p) in "
                    "another engine's.");
  FromTotals device_tokens{cached_by_source.Add({{"source", "device"}})};
  FromTotals peer_tokens{cached_by_source.Add({{"source", "p2p"}})};
  FromTotals generation_tokens{make.Counter("vllm:generation_tokens_total", "Tokens generated.")};
  FromTotals prefix_queries{make.Counter("vllm:prefix_cache_queries_total",
                                         "Prompt tokens looked up in the prefix cache.")};
  FromTotals prefix_hits{
      make.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")};
  FromTotals steps{make_own.Counter("pinion:steps_total", "Forward passes of the model.")};
  MetricsOf<prometheus::Counter> step_seconds = make_own.Counters(
      "pinion:step_seconds_total", "Time of steps that compute prompts, and of those that do not.");
  MetricsOf<prometheus::Counter> step_tokens =
      make_own.Counters("pinion:step_tokens_total",
                        "Prompt tokens of the former steps; tokens that the latter yielded.");
  MetricsOf<prometheus::Counter> step_bytes =
      make_own.Counters("pinion:step_bytes_total", "The least bytes that these steps had to read.");
  MetricsOf<prometheus::Counter> step_operations = make_own.Counters(
      "pinion:step_operations_total", "The least operations that these steps had to compute.");
  // The steps of one kind.
  struct Steps {
    FromTotals seconds, tokens, bytes, operations;

    void Set(const StepWork& work) {
      seconds.Set(work.seconds);
      tokens.Set(static_cast<double>(work.tokens));
      bytes.Set(static_cast<double>(work.least.bytes()));
      operations.Set(static_cast<double>(work.least.operations()));
    }
  };
  Steps StepsOf(const char* kind) {
    const prometheus::Labels labels = {{"kind", kind}};
    return {FromTotals(step_seconds.Add(labels)), FromTotals(step_tokens.Add(labels)),
            FromTotals(step_bytes.Add(labels)), FromTotals(step_operations.Add(labels))};
  }
  Steps prefill_steps = StepsOf("prefill"), decode_steps = StepsOf("decode");
  MetricsOf<prometheus::Counter> finished_family =
      make.Counters("vllm:request_success_total", "Finished sequences by finish reason.");
  FromTotals transfer_orders{
      make.Counter("pinion:transfer_prompts_total",
                   "Prompts that one engine was to compute for another (--role), by both.")};
  FromTotals transfer_failed{make.Counter("pinion:transfer_failed_prompts_total",
                                          "Those that were not handed over as a whole.")};
  MetricsOf<prometheus::Counter> transfer_tokens =
      make.Counters("pinion:transfer_tokens_total",
                    "Prompt tokens whose keys and values an engine gave to another, or took.");
  FromTotals given_tokens{transfer_tokens.Add({{"direction", "given"}})};
  FromTotals taken_tokens{transfer_tokens.Add({{"direction", "taken"}})};
  FromTotals transfer_bytes{
      make.Counter("pinion:transfer_bytes_total", "Bytes of their keys, values and states.")};
  prometheus::Histogram& first_token =
      make.Histogram("vllm:time_to_first_token_seconds",
                     "Time from a request's arrival to its first token.", kFirstTokenBuckets);
  prometheus::Histogram& inter_token = make.Histogram(
      "vllm:inter_token_latency_seconds", "Time between two tokens of a sequence.", kTokenBuckets);
  prometheus::Histogram& old_inter_token =
      make.Histogram("vllm:time_per_output_token_seconds",
                     "Older name of vllm:inter_token_latency_seconds.", kTokenBuckets);
  prometheus::Histogram& per_output_token =
      make.Histogram("vllm:request_time_per_output_token_seconds",
                     "A sequence's mean time per token after the first.", kTokenBuckets);
  prometheus::Histogram& e2e = make.Histogram(
      "vllm:e2e_request_latency_seconds", "Time from arrival to the last token.", kRequestBuckets);
  prometheus::Histogram& queue =
      make.Histogram("vllm:request_queue_time_seconds",
                     "Time from arrival in the engine to the first step.", kRequestBuckets);
  prometheus::Histogram& inference =
      make.Histogram("vllm:request_inference_time_seconds",
                     "Time from the first step to the last token.", kRequestBuckets);
  prometheus::Histogram& prefill =
      make.Histogram("vllm:request_prefill_time_seconds",
                     "Time from the first step to the first token.", kRequestBuckets);
  prometheus::Histogram& decode =
      make.Histogram("vllm:request_decode_time_seconds",
                     "Time from the first token to the last one.", kRequestBuckets);
  prometheus::Histogram& request_preemptions = make.Histogram(
      "vllm:request_num_preemptions", "Preemptions per sequence.", kPreemptionBuckets);
  prometheus::Histogram& request_n =
      make.Histogram("vllm:request_params_n", "The parameter n of requests.", kChoiceBuckets);
  prometheus::Histogram& iteration_tokens = make.Histogram(
      "vllm:iteration_tokens_total", "Tokens of a step, of prompts and yielded.", kStepBuckets);
  // Tokens of a request, in buckets up to the model's length, which is known once it is loaded.
  struct Lengths {
    prometheus::Histogram &prompt, &generation, &max_generation, &max_tokens, &computed;
  };
  std::optional<Lengths> lengths;
  double step_tokens_before = 0;
  std::map<std::string, prometheus::Counter*, std::less<>> finished;
  size_t engine_waiting = 0, front_waiting = 0;  // both are vllm:num_requests_waiting
};

EngineMetrics::EngineMetrics(prometheus::Registry& registry, const std::string& model_name,
                             size_t engine)
    : state_(std::make_unique<State>(registry, model_name, engine)) {
  SetSleepLevel(0);
}
EngineMetrics::~EngineMetrics() = default;

void EngineMetrics::SetStats(const EngineStats& stats) {
  state_->running.Set(static_cast<double>(stats.scheduler.running));
  state_->engine_waiting = stats.scheduler.waiting;
  state_->ShowWaiting();
  const double usage = stats.blocks_total == 0 ? 0
                                               : static_cast<double>(stats.blocks_used) /
                                                     static_cast<double>(stats.blocks_total);
  state_->kv_usage.Set(usage);
  state_->gpu_usage.Set(usage);
  state_->preemptions.Set(static_cast<double>(stats.scheduler.preemptions));
  const auto computed = static_cast<double>(stats.prompt_tokens);
  const auto hits = static_cast<double>(stats.kv.prefix_hit_tokens);
  const auto taken = static_cast<double>(stats.transfer.taken_tokens);
  state_->prompt_tokens.Set(computed + hits + taken);
  state_->computed_tokens.Set(computed);
  state_->hit_tokens.Set(hits);
  state_->cached_tokens.Set(hits + taken);
  state_->device_tokens.Set(hits);
  state_->peer_tokens.Set(taken);
  const double tokens = computed + static_cast<double>(stats.output_tokens);
  if (tokens < state_->step_tokens_before) state_->step_tokens_before = 0;  // another process
  if (tokens > state_->step_tokens_before)
    state_->iteration_tokens.Observe(tokens - state_->step_tokens_before);
  state_->step_tokens_before = tokens;
  state_->generation_tokens.Set(static_cast<double>(stats.output_tokens));
  state_->prefix_queries.Set(static_cast<double>(stats.kv.prefix_query_tokens));
  state_->prefix_hits.Set(static_cast<double>(stats.kv.prefix_hit_tokens));
  state_->steps.Set(static_cast<double>(stats.steps));
  state_->prefill_steps.Set(stats.prefill);
  state_->decode_steps.Set(stats.decode);
  state_->transfer_orders.Set(static_cast<double>(stats.transfer.orders));
  state_->transfer_failed.Set(static_cast<double>(stats.transfer.failed));
  state_->given_tokens.Set(static_cast<double>(stats.transfer.given_tokens));
  state_->taken_tokens.Set(taken);
  state_->external_tokens.Set(taken);
  state_->transfer_bytes.Set(static_cast<double>(stats.transfer.bytes));
}

void EngineMetrics::AddFirstToken(double seconds) { state_->first_token.Observe(seconds); }

void EngineMetrics::AddInterTokenLatency(double seconds) {
  state_->inter_token.Observe(seconds);
  state_->old_inter_token.Observe(seconds);
}

void EngineMetrics::AddFinished(const ServeMetrics::Finished& sequence) {
  const auto found = state_->finished.find(sequence.reason);
  if (found != state_->finished.end()) found->second->Increment();
  if (sequence.reason != "stop" && sequence.reason != "length") return;
  state_->e2e.Observe(sequence.e2e_seconds);
  state_->queue.Observe(sequence.queue_seconds);
  state_->inference.Observe(sequence.prefill_seconds + sequence.decode_seconds);
  state_->prefill.Observe(sequence.prefill_seconds);
  state_->decode.Observe(sequence.decode_seconds);
  state_->request_preemptions.Observe(static_cast<double>(sequence.preemptions));
  if (sequence.output_tokens > 1)
    state_->per_output_token.Observe((sequence.e2e_seconds - sequence.first_token_seconds) /
                                     static_cast<double>(sequence.output_tokens - 1));
  if (!state_->lengths) return;
  state_->lengths->prompt.Observe(static_cast<double>(sequence.prompt_tokens));
  state_->lengths->generation.Observe(static_cast<double>(sequence.output_tokens));
  state_->lengths->computed.Observe(
      static_cast<double>(sequence.prompt_tokens - sequence.cached_tokens));
  state_->lengths->max_tokens.Observe(static_cast<double>(sequence.max_tokens));
}

void EngineMetrics::AddRequest(size_t n, size_t longest_output) {
  state_->request_n.Observe(static_cast<double>(n));
  if (state_->lengths) state_->lengths->max_generation.Observe(static_cast<double>(longest_output));
}

void EngineMetrics::SetModel(size_t max_model_len,
                             const std::map<std::string, std::string>& cache_config) {
  if (state_->lengths) return;  // the model stays the same
  const Buckets at = LengthBuckets(max_model_len);
  const MetricsMaker& make = state_->make;
  state_->lengths.emplace(State::Lengths{
      make.Histogram("vllm:request_prompt_tokens", "Prompt tokens per sequence.", at),
      make.Histogram("vllm:request_generation_tokens", "Generated tokens per sequence.", at),
      make.Histogram("vllm:request_max_num_generation_tokens",
                     "Tokens of the longest output of a request.", at),
      make.Histogram("vllm:request_params_max_tokens", "The limit of a sequence's output.", at),
      make.Histogram("vllm:request_prefill_kv_computed_tokens",
                     "Prompt tokens per sequence that the prefix cache did not have.", at)});
  state_->cache_config.Add(cache_config).Set(1);
}

void EngineMetrics::SetSleepLevel(int level) {
  state_->awake.Set(level == 0 ? 1 : 0);
  state_->sleep_1.Set(level == 1 ? 1 : 0);
  state_->sleep_2.Set(level == 2 ? 1 : 0);
}

void EngineMetrics::SetFrontWaiting(size_t choices) {
  state_->front_waiting = choices;
  state_->ShowWaiting();
}

}  // namespace pinion
