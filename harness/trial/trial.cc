#include "harness/trial/trial.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/counters.h"
#include "harness/load/arrivals.h"
#include "harness/stats/estimate.h"
#include "harness/stats/serving.h"
#include "harness/trial/limits.h"
#include "harness/trial/load.h"
#include "harness/trial/measurement.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

// Drawn lengths are cut to the longest sequence; a requested length that is too long is refused by
// the engine.
int LongestOf(const EngineInfo& info, const Workload& workload) {
  const bool drawn = !workload.name.empty() && info.max_model_len > 0;
  return drawn ? static_cast<int>(info.max_model_len) : kMaxLength;
}

// One engine in this process under one request's load.
class EngineMeasurement final : public Measurement {
 public:
  EngineMeasurement(Engine& engine, const TrialRequest& request, int64_t start_ns,
                    const Clock& clock)
      : Measurement(request, start_ns, clock),
        engine_(engine),
        shape_(ShapeOf(request.workload)),
        longest_(LongestOf(engine.info(), request.workload)) {}

 private:
  Result<LoadResult> Send(const LoadPhase& phase) {
    LoadPlan plan;
    plan.clients = phase.clients;
    plan.requests = phase.requests;
    plan.clock = &clock();
    const uint64_t seed = request().seed;
    plan.conversation = [this, seed, stream = phase.stream](int index) {
      return MakeTokenConversation(shape_, seed, stream, static_cast<uint64_t>(index),
                                   engine_.model().spec.vocabulary, longest_);
    };
    if (phase.most_output > 0)
      plan.conversation = FirstTurns(std::move(plan.conversation), phase.most_output);
    if (phase.rate)
      plan.arrival_s = ArrivalSeconds({*phase.rate, 1, {}}, static_cast<size_t>(phase.requests),
                                      seed ^ phase.stream);
    const int64_t now_ns = clock().NowNs();
    const auto later = [now_ns](double seconds) {
      constexpr double kForever = 1e9;
      return now_ns + static_cast<int64_t>(std::min(seconds, kForever) * 1e9);
    };
    plan.stop_sending_ns = later(phase.stop_sending_s);
    plan.deadline_ns = later(phase.deadline_s);
    plan.last_deadline_ns = later(phase.last_deadline_s);
    PINION_ASSIGN(LoadResult load, RunLoad(engine_, plan));
    engine_.DropPrefixCache();
    return load;
  }

  Result<bool> WarmUp(const LoadPhase& phase) override {
    PINION_ASSIGN(const LoadResult load, Send(phase));
    CountOutput(load.OutputTokens());
    return !load.cut;
  }

  Status Offline(const LoadPhase& phase) override {
    PINION_ASSIGN(const LoadResult load, Send(phase));
    const size_t tokens = load.OutputTokens();
    CountOutput(tokens);
    int64_t first_ns = load.clients.front().times.sent_ns, last_ns = first_ns;
    std::map<std::pair<size_t, size_t>, std::vector<int32_t>>
        answers;  // ordered, not by finish time
    for (const ClientTrace& client : load.clients) {
      answers[{client.conversation, client.turn}] = client.tokens;
      if (!client.times.token_ns.empty()) last_ns = std::max(last_ns, client.times.token_ns.back());
    }
    if (tokens == 0 || last_ns <= first_ns) return NoTokens("the offline batch");
    const double window_s = static_cast<double>(last_ns - first_ns) * 1e-9;
    Add("output_tokens_per_s", 0, static_cast<double>(tokens) / window_s);
    if (load.steps.prefill_s > 0) Add("prefill_tokens_per_s", 0, load.steps.prefill_tokens_per_s());
    if (load.steps.decode_s > 0) Add("decode_tokens_per_s", 0, load.steps.decode_tokens_per_s());
    AddWork("prefill", load.steps.prefill_cost, load.steps.prefill_s);
    AddWork("decode", load.steps.decode_cost, load.steps.decode_s);
    AddKv(load.kv, 0);
    if (load.cut) {
      Cut(StrCat("offline batch cut after ", tokens, " tokens"));
    } else {
      std::vector<std::vector<int32_t>> outputs;
      for (auto& [turn, answer] : answers) outputs.push_back(std::move(answer));
      SetOutputHash(HashTokens(outputs));
    }
    return {};
  }

  Status ClosedLoop(const LoadPhase& phase) override {
    PINION_ASSIGN(const LoadResult load, Send(phase));
    CountOutput(load.OutputTokens());
    const std::string name = LoopName(phase);
    const size_t before = samples().size();
    AddServingSamples(load, phase.clients, limits(), samples());
    if (samples().size() == before) return NoTokens("the " + name);
    if (const std::string late = LateClient(load); !late.empty()) Suspect(late);
    AddKv(load.kv, phase.clients);
    Distribute(Summarise(load.CompleteTraces()), phase.clients);
    if (load.cut) Cut(name + " cut");
    return {};
  }

  Result<LevelRun> Level(const LoadPhase& phase, const Slo& limits) override {
    PINION_ASSIGN(const LoadResult load, Send(phase));
    CountOutput(load.OutputTokens());
    LevelRun level;
    for (const ClientTrace& client : load.clients)
      Judge(client.times, client.complete, load.end_ns, limits, level);
    return level;
  }

  tl::unexpected<Error> NoTokens(const std::string& what) {
    return TooSlow(StrCat("no request of ", what, " reached two tokens in its share of the ",
                          "trial's limit of ", request().limit_s, " s"));
  }

  // The phase's work, for its place under the machine's roofline.
  void AddWork(const std::string& phase, const StepCost& cost, double seconds) {
    if (seconds <= 0) return;
    Add(phase + "_flops_per_s", 0, static_cast<double>(cost.operations()) / seconds);
    Add(phase + "_bytes_per_s", 0, static_cast<double>(cost.bytes()) / seconds);
  }

  void AddKv(const KvUse& kv, int concurrency) {
    const auto share = [](uint64_t part, uint64_t whole) {
      return static_cast<double>(part) / static_cast<double>(whole);
    };
    Add("preemptions", concurrency, static_cast<double>(kv.preemptions));
    if (kv.blocks > 0) Add("kv_used_share", concurrency, share(kv.most_blocks, kv.blocks));
    if (kv.prefix_query_tokens > 0)
      Add("prefix_hit_share", concurrency, share(kv.prefix_hit_tokens, kv.prefix_query_tokens));
  }

  // If the ceilings cannot be measured, the trial keeps the reason.
  void AddCeilings(Json& about) {
    const int64_t start_ns = clock().NowNs();
    const auto probe = StartCeilings(engine_);
    if (!probe) return about.Set("no_ceilings_because", probe.error().message);
    const Ceilings ceilings = (*probe)->Measure();
    Add("ceiling_flops_per_s", 0, ceilings.flops_per_s);
    if (ceilings.int8_ops_per_s > 0) Add("ceiling_int8_ops_per_s", 0, ceilings.int8_ops_per_s);
    Add("ceiling_bytes_per_s", 0, ceilings.read_bytes_per_s);
    about.Set("once_s", SecondsSince(start_ns));
  }

  void Describe(Json& about) override {
    const EngineInfo& info = engine_.info();
    Add("load_s", 0, info.load_s);
    Add("start_s", 0, info.start_s);
    Add("peak_rss_bytes", 0, static_cast<double>(PeakRssBytes()));
    about.Set("isa", info.isa);
    about.Set("dtype", info.dtype);
    about.Set("threads", info.threads);
    about.Set("ranks", static_cast<int64_t>(info.plan.ranks.size()));
    about.Set("weight_bytes", info.weight_bytes);
    about.Set("kv_bytes", info.kv_bytes);
    about.Set("plan", ToJson(info.plan));
    about.Set("stages", info.stages);
    if (request().ceilings) AddCeilings(about);
  }

  Engine& engine_;
  const WorkloadShape shape_;
  const int longest_;  // tokens of a sequence
};

}  // namespace

Json ToJson(const TrialResult& result) {
  Json object = Json::MakeObject();
  Json samples = Json::MakeArray();
  for (const MetricValue& sample : result.samples) {
    Json one = Json::MakeObject();
    one.Set("metric", sample.metric);
    one.Set("concurrency", sample.concurrency);
    one.Set("value", sample.value);
    samples.Append(std::move(one));
  }
  object.Set("samples", std::move(samples));
  object.Set("output_hash", result.output_hash);
  object.Set("suspect", Json(result.suspect));
  object.Set("info", result.info);
  object.Set("too_slow", result.too_slow);
  return object;
}

Result<TrialResult> ReadTrialResult(const Json& object) {
  TrialResult result;
  const Json* samples = object.Find("samples");
  const Json* suspect = object.Find("suspect");
  const Json* info = object.Find("info");
  if (!samples || !samples->is_array() || !suspect || !suspect->is_array() || !info)
    return Fail(ErrorCode::kCorrupt, "a trial's result lacks its samples");
  for (const Json& one : samples->array()) {
    MetricValue sample;
    PINION_ASSIGN(sample.metric, Require<std::string>(one, "metric"));
    PINION_ASSIGN(sample.concurrency, Require<int>(one, "concurrency"));
    PINION_ASSIGN(sample.value, Require<double>(one, "value"));
    result.samples.push_back(std::move(sample));
  }
  for (const Json& reason : suspect->array())
    if (reason.is_string()) result.suspect.push_back(reason.string());
  PINION_ASSIGN(result.output_hash, Require<std::string>(object, "output_hash"));
  PINION_ASSIGN(result.too_slow, Optional<std::string>(object, "too_slow", ""));
  result.info = *info;
  return result;
}

void AddCounters(const std::vector<CounterReading>& readings, size_t output_tokens,
                 TrialResult& result) {
  result.info.Set("counters", ToJson(readings));
  for (const CounterValue& figure : FiguresOf(readings))
    result.samples.push_back({figure.name, 0, figure.value});
  if (const auto joules = JoulesOf(readings); joules && output_tokens > 0)
    result.samples.push_back({"joules_per_token", 0, *joules / static_cast<double>(output_tokens)});
}

uint64_t PeakRssBytes() {
  std::istringstream lines(ReadFile("/proc/self/status", 1 << 20).value_or(""));
  std::string word;
  uint64_t kib = 0;
  while (lines >> word)
    if (word == "VmHWM:" && lines >> kib) return kib * 1024;
  return 0;
}

void AddServingSamples(const LoadResult& load, int concurrency, const Slo& slo,
                       std::vector<MetricValue>& samples) {
  const std::vector<RequestTrace> complete = load.CompleteTraces();
  const ServingSummary summary =
      Summarise(complete.empty() ? load.TracesWithDecode() : complete, slo);
  if (summary.requests == 0) return;
  const auto add = [&](const char* metric, double value) {
    samples.push_back({metric, concurrency, value});
  };
  const auto add_quantile = [&](const char* metric, const std::vector<double>& values, double q) {
    if (const auto value = SupportedQuantile(values, q)) add(metric, *value);
  };
  add("ttft_s", Median(summary.ttft_s));
  if (!summary.tpot_s.empty()) add("tpot_s", Median(summary.tpot_s));
  if (!summary.itl_s.empty()) add("itl_s", Median(summary.itl_s));
  add_quantile("itl_p90_s", summary.itl_s, 0.90);
  add_quantile("itl_p99_s", summary.itl_s, 0.99);
  if (complete.empty()) return;  // requests that were cut off have no end-to-end times
  std::vector<double> queue_s, prefill_s;
  for (const ClientTrace& client : load.clients) {
    if (!client.complete) continue;
    queue_s.push_back(client.queue_s);
    prefill_s.push_back(client.prefill_s);
  }
  add("output_tokens_per_s", summary.output_tokens_per_s);
  if (slo.any()) add("goodput", summary.goodput);
  add("e2el_s", Median(summary.e2el_s));
  add("queue_s", Median(queue_s));
  add("prefill_s", Median(prefill_s));
  add_quantile("ttft_p90_s", summary.ttft_s, 0.90);
}

void AddQuantiles(const ServingSummary& summary, int concurrency, Json& list) {
  constexpr int kSteps = 20;
  for (const auto& [metric, values] :
       {std::pair("ttft_s", &summary.ttft_s), std::pair("itl_s", &summary.itl_s)}) {
    if (values->empty()) continue;
    Json quantiles = Json::MakeArray();
    for (int i = 0; i <= kSteps; ++i)
      quantiles.Append(Quantile(*values, static_cast<double>(i) / kSteps));
    list.Append(Json::Object{{"metric", metric},
                             {"concurrency", concurrency},
                             {"n", static_cast<uint64_t>(values->size())},
                             {"values", std::move(quantiles)}});
  }
}

Result<TrialResult> MeasureTrial(Engine& engine, const TrialRequest& request, int64_t start_ns,
                                 const Clock& clock) {
  return EngineMeasurement(engine, request, start_ns, clock).Run({}, engine.info().threads);
}

Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns) {
  PINION_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Start(request.options));
  return MeasureTrial(*engine, request, start_ns);
}

}  // namespace pinion::harness
