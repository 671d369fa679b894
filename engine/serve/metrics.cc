#include "engine/serve/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <utility>
#include <vector>

#include "engine/serve/engine_metrics.h"
#include "engine/serve/http_metrics.h"
#include "engine/serve/metrics_maker.h"
#include "engine/serve/process_metrics.h"
#include "engine/serve/request_memory.h"

namespace pinion {
namespace {

const prometheus::Histogram::BucketBoundaries kPrepareBuckets = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};

const prometheus::Histogram::BucketBoundaries kRestBuckets = {0.01, 0.1, 1,   10, 30,
                                                              60,   120, 300, 600};

}  // namespace

struct ServeMetrics::State {
  State(const std::string& model, size_t count) : make(registry, {{"model_name", model}}) {
    for (size_t engine = 0; engine < count; ++engine)
      engines.push_back(std::make_unique<EngineMetrics>(registry, model, engine));
    for (const char* reason : {"max_num_queued_reqs", "max_num_queued_tokens"})
      rejected[reason] = &rejected_family.Add({{"reason", reason}});
  }

  prometheus::Registry registry;
  MetricsMaker make;
  std::vector<std::unique_ptr<EngineMetrics>> engines;
  MetricsOf<prometheus::Counter> rejected_family =
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
  MetricsOf<prometheus::Counter> unknown_fields =
      make.Counters("pinion:unknown_fields_total",
                    "Fields of requests that no endpoint reads: refused, or ignored.");
  prometheus::Histogram& prepared =
      make.Histogram("pinion:prepare_seconds",
                     "Time from a request's arrival to its prompt's tokens.", kPrepareBuckets);
  std::map<std::string, prometheus::Counter*, std::less<>> rejected;
  HttpMetrics http;
};

ServeMetrics::ServeMetrics(const std::string& model_name, size_t engines)
    : state_(std::make_unique<State>(model_name, engines)) {}
ServeMetrics::~ServeMetrics() = default;

void ServeMetrics::SetEngine(size_t engine, const EngineStats& stats) {
  state_->engines[engine]->SetStats(stats);
}

void ServeMetrics::AddFirstToken(size_t engine, double seconds) {
  state_->engines[engine]->AddFirstToken(seconds);
}

void ServeMetrics::AddInterTokenLatency(size_t engine, double seconds) {
  state_->engines[engine]->AddInterTokenLatency(seconds);
}

void ServeMetrics::AddFinished(size_t engine, const Finished& sequence) {
  state_->engines[engine]->AddFinished(sequence);
}

void ServeMetrics::AddRequest(size_t engine, size_t n, size_t longest_output) {
  state_->engines[engine]->AddRequest(n, longest_output);
}

void ServeMetrics::SetModel(size_t max_model_len,
                            const std::vector<std::map<std::string, std::string>>& cache_configs) {
  for (size_t engine = 0; engine < state_->engines.size(); ++engine)
    state_->engines[engine]->SetModel(max_model_len, cache_configs[engine]);
}

void ServeMetrics::SetSleepLevel(int level) {
  for (const auto& engine : state_->engines) engine->SetSleepLevel(level);
}

void ServeMetrics::SetAwaitedRest(const char* operation, size_t requests) {
  MetricsMaker(state_->registry, {{"operation", operation}})
      .Gauge("vllm:sleep_mode_operations_in_flight", "Requests that wait for sleep mode.")
      .Set(static_cast<double>(requests));
}

void ServeMetrics::AddRest(const char* operation, double seconds) {
  MetricsMaker(state_->registry, {{"operation", operation}})
      .Histogram("vllm:sleep_mode_operation_duration_seconds",
                 "Time of requests that waited for sleep mode.", kRestBuckets)
      .Observe(seconds);
}

void ServeMetrics::AddExchange(const AccessRecord& exchange, bool known) {
  state_->http.Add(exchange, known);
}

void ServeMetrics::SetFront(const FrontCounts& counts) {
  state_->request_memory.Set(static_cast<double>(counts.request_memory_bytes));
  state_->memory_rejections.Set(static_cast<double>(counts.memory_rejections));
  state_->connections.Set(static_cast<double>(counts.connections));
  state_->pool_queued.Set(static_cast<double>(counts.pool_queued));
  state_->engine_up.Set(counts.engine_up ? 1 : 0);
  // It is not known yet which engine will get them.
  state_->engines.front()->SetFrontWaiting(counts.pending);
}

void ServeMetrics::AddRejected(const char* reason) {
  const auto found = state_->rejected.find(reason);
  if (found != state_->rejected.end()) found->second->Increment();
}

void ServeMetrics::AddRestart() { state_->restarts.Increment(); }
void ServeMetrics::AddUnknownFields(const char* outcome, size_t fields) {
  state_->unknown_fields.Add({{"outcome", outcome}}).Increment(static_cast<double>(fields));
}
void ServeMetrics::AddDeadlineExceeded() { state_->deadlines.Increment(); }
void ServeMetrics::AddPrepared(double seconds) { state_->prepared.Observe(seconds); }

std::string ServeMetrics::Render() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect()) +
         state_->http.Render() + ProcessMetrics();
}

}  // namespace pinion
