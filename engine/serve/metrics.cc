#include "engine/serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>

#include "engine/serve/request_memory.h"

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
const Buckets kCountBuckets = {1,   2,    5,    10,   20,    50,    100,   200,
                               500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

}  // namespace

struct ServeMetrics::State {
  // Creates metrics that all carry the model's name as a label.
  class Maker {
   public:
    Maker(prometheus::Registry& registry, const std::string& model)
        : registry_(registry), labels_{{"model_name", model}} {}

    prometheus::Gauge& Gauge(const char* name, const char* help) const {
      return prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_).Add(
          {});
    }
    prometheus::Family<prometheus::Counter>& Counters(const char* name, const char* help) const {
      return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_);
    }
    prometheus::Counter& Counter(const char* name, const char* help) const {
      return Counters(name, help).Add({});
    }
    prometheus::Histogram& Histogram(const char* name, const char* help, const Buckets& at) const {
      return prometheus::BuildHistogram()
          .Name(name)
          .Help(help)
          .Labels(labels_)
          .Register(registry_)
          .Add({}, at);
    }

   private:
    prometheus::Registry& registry_;
    prometheus::Labels labels_;
  };

  // The engine reports totals, but Prometheus counters take increments. A new engine process counts
  // from 0 again.
  class FromTotals {
   public:
    explicit FromTotals(prometheus::Counter& counter) : counter_(counter) {}
    void Set(double total) {
      if (total < last_) last_ = 0;
      counter_.Increment(total - last_);
      last_ = total;
    }

   private:
    prometheus::Counter& counter_;
    double last_ = 0;
  };

  explicit State(const std::string& model) : make(registry, model) {
    for (const char* reason : {"stop", "length", "abort", "error"})
      finished[reason] = &finished_family.Add({{"finished_reason", reason}});
    for (const char* reason : {"max_num_queued_reqs", "max_num_queued_tokens"})
      rejected[reason] = &rejected_family.Add({{"reason", reason}});
  }

  void ShowWaiting() { waiting.Set(static_cast<double>(engine_waiting + front_waiting)); }

  prometheus::Registry registry;
  Maker make;
  prometheus::Gauge& running = make.Gauge("vllm:num_requests_running", "Sequences being computed.");
  prometheus::Gauge& waiting =
      make.Gauge("vllm:num_requests_waiting", "Sequences waiting to be scheduled.");
  prometheus::Gauge& kv_usage =
      make.Gauge("vllm:kv_cache_usage_perc", "Fraction of KV blocks in use; 1 means all.");
  prometheus::Gauge& gpu_usage =
      make.Gauge("vllm:gpu_cache_usage_perc",
                 "Older name of vllm:kv_cache_usage_perc; does not refer to a GPU.");
  FromTotals preemptions{make.Counter("vllm:num_preemptions_total",
                                      "Sequences returned to the queue to free KV blocks.")};
  FromTotals prompt_tokens{make.Counter("vllm:prompt_tokens_total", "Prompt tokens processed.")};
  FromTotals generation_tokens{make.Counter("vllm:generation_tokens_total", "Tokens generated.")};
  FromTotals prefix_queries{make.Counter("vllm:prefix_cache_queries_total",
                                         "Prompt tokens looked up in the prefix cache.")};
  FromTotals prefix_hits{
      make.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")};
  FromTotals steps{make.Counter("pinion:steps_total", "Forward passes of the model.")};
  prometheus::Family<prometheus::Counter>& step_seconds = make.Counters(
      "pinion:step_seconds_total", "Time of steps that compute prompts, and of those that do not.");
  prometheus::Family<prometheus::Counter>& step_tokens =
      make.Counters("pinion:step_tokens_total",
                    "Prompt tokens of the former steps; tokens that the latter yielded.");
  prometheus::Family<prometheus::Counter>& step_bytes =
      make.Counters("pinion:step_bytes_total", "The least bytes that these steps had to read.");
  prometheus::Family<prometheus::Counter>& step_operations = make.Counters(
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
  prometheus::Family<prometheus::Counter>& finished_family =
      make.Counters("vllm:request_success_total", "Finished sequences by finish reason.");
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
  prometheus::Histogram& request_prompt_tokens =
      make.Histogram("vllm:request_prompt_tokens", "Prompt tokens per sequence.", kCountBuckets);
  prometheus::Histogram& request_generation_tokens = make.Histogram(
      "vllm:request_generation_tokens", "Generated tokens per sequence.", kCountBuckets);
  prometheus::Family<prometheus::Counter>& rejected_family =
      make.Counters("vllm:admission_rejections_total",
                    "Requests answered 503 because a limit was reached, by the limit.");
  FromTotals memory_rejections{rejected_family.Add({{"reason", kRequestMemory}})};
  prometheus::Gauge& request_memory =
      make.Gauge("pinion:request_memory_bytes", "Memory that bodies and requests take.");
  prometheus::Gauge& connections = make.Gauge("pinion:connections", "Open connections.");
  prometheus::Gauge& pool_queued =
      make.Gauge("pinion:pool_queued", "Requests that wait for a worker thread.");
  prometheus::Gauge& engine_up =
      make.Gauge("pinion:engine_up", "1 if the engine process answers requests, else 0.");
  prometheus::Counter& restarts =
      make.Counter("pinion:engine_restarts_total", "Engine processes started after another ended.");
  prometheus::Counter& deadlines =
      make.Counter("pinion:deadline_exceeded_total", "Requests ended because their time was over.");
  prometheus::Histogram& prepared =
      make.Histogram("pinion:prepare_seconds",
                     "Time from a request's arrival to its prompt's tokens.", kFirstTokenBuckets);
  std::map<std::string, prometheus::Counter*, std::less<>> finished, rejected;
  size_t engine_waiting = 0, front_waiting = 0;  // both are vllm:num_requests_waiting
};

ServeMetrics::ServeMetrics(const std::string& model_name)
    : state_(std::make_unique<State>(model_name)) {}
ServeMetrics::~ServeMetrics() = default;

void ServeMetrics::SetEngine(const EngineStats& stats) {
  state_->running.Set(static_cast<double>(stats.scheduler.running));
  state_->engine_waiting = stats.scheduler.waiting;
  state_->ShowWaiting();
  const double usage = stats.blocks_total == 0 ? 0
                                               : static_cast<double>(stats.blocks_used) /
                                                     static_cast<double>(stats.blocks_total);
  state_->kv_usage.Set(usage);
  state_->gpu_usage.Set(usage);
  state_->preemptions.Set(static_cast<double>(stats.scheduler.preemptions));
  state_->prompt_tokens.Set(static_cast<double>(stats.prompt_tokens));
  state_->generation_tokens.Set(static_cast<double>(stats.output_tokens));
  state_->prefix_queries.Set(static_cast<double>(stats.kv.prefix_query_tokens));
  state_->prefix_hits.Set(static_cast<double>(stats.kv.prefix_hit_tokens));
  state_->steps.Set(static_cast<double>(stats.steps));
  state_->prefill_steps.Set(stats.prefill);
  state_->decode_steps.Set(stats.decode);
}

void ServeMetrics::AddFirstToken(double seconds) { state_->first_token.Observe(seconds); }

void ServeMetrics::AddInterTokenLatency(double seconds) {
  state_->inter_token.Observe(seconds);
  state_->old_inter_token.Observe(seconds);
}

void ServeMetrics::AddFinished(const Finished& sequence) {
  const auto found = state_->finished.find(sequence.reason);
  if (found != state_->finished.end()) found->second->Increment();
  if (sequence.reason != "stop" && sequence.reason != "length") return;
  state_->e2e.Observe(sequence.e2e_seconds);
  state_->queue.Observe(sequence.queue_seconds);
  state_->request_prompt_tokens.Observe(static_cast<double>(sequence.prompt_tokens));
  state_->request_generation_tokens.Observe(static_cast<double>(sequence.output_tokens));
  if (sequence.output_tokens > 1)
    state_->per_output_token.Observe((sequence.e2e_seconds - sequence.first_token_seconds) /
                                     static_cast<double>(sequence.output_tokens - 1));
}

void ServeMetrics::SetFront(const FrontCounts& counts) {
  state_->request_memory.Set(static_cast<double>(counts.request_memory_bytes));
  state_->memory_rejections.Set(static_cast<double>(counts.memory_rejections));
  state_->connections.Set(static_cast<double>(counts.connections));
  state_->pool_queued.Set(static_cast<double>(counts.pool_queued));
  state_->engine_up.Set(counts.engine_up ? 1 : 0);
  state_->front_waiting = counts.pending;
  state_->ShowWaiting();
}

void ServeMetrics::AddRejected(const char* reason) {
  const auto found = state_->rejected.find(reason);
  if (found != state_->rejected.end()) found->second->Increment();
}

void ServeMetrics::AddRestart() { state_->restarts.Increment(); }
void ServeMetrics::AddDeadlineExceeded() { state_->deadlines.Increment(); }
void ServeMetrics::AddPrepared(double seconds) { state_->prepared.Observe(seconds); }

std::string ServeMetrics::Render() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace pinion
