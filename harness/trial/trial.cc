#include "harness/trial/trial.h"

#include <algorithm>
#include <sstream>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/counters.h"
#include "harness/stats/estimate.h"
#include "harness/stats/serving.h"
#include "harness/trial/conditions.h"
#include "harness/trial/limits.h"
#include "harness/trial/load.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kWarmUpStream = 0, kOfflineStream = 1, kFirstLoopStream = 2;

// What a stalled machine may add even to the shortest trial.
constexpr double kLeastGraceSeconds = 2;

size_t OutputTokens(const LoadResult& load) {
  size_t tokens = 0;
  for (const ClientTrace& client : load.clients) tokens += client.tokens.size();
  return tokens;
}

int64_t Later(int64_t start_ns, double seconds) {
  return start_ns + static_cast<int64_t>(seconds * 1e9);
}

// One engine under one request's load.
class Measurement {
 public:
  Measurement(Engine& engine, const TrialRequest& request, int64_t start_ns)
      : engine_(engine), request_(request) {
    const int64_t end_ns = Later(start_ns, request.limit_s);
    // A slow start or a slow machine must not leave a candidate unmeasured.
    end_ns_ = std::max(end_ns, Later(NowNs(), request.limit_s / 2));
    last_ns_ = Later(end_ns_, std::max(request.limit_s / 2, kLeastGraceSeconds));
  }

  Result<TrialResult> Run() {
    PINION_TRY(WarmUp());
    const Conditions before = Conditions::Now();
    Counters counters = Counters::Start({});
    PINION_TRY(Offline());
    const auto& loops = request_.workload.concurrency;
    for (size_t i = 0; i < loops.size(); ++i) PINION_TRY(ClosedLoop(i, loops.size() - i));
    AddCounters(counters.Stop(), output_tokens_, result_);
    AddConditions(before, Conditions::Now());
    Describe();
    if (request_.ceilings) AddCeilings();
    return std::move(result_);
  }

 private:
  LoadPlan Plan(uint64_t stream, int clients, int requests) const {
    LoadPlan plan;
    plan.clients = clients;
    plan.requests = requests;
    plan.output_len = request_.workload.output_len;
    const int length = request_.workload.prompt_len, vocabulary = engine_.model().spec.vocabulary;
    plan.prompt = [seed = request_.seed, stream, length, vocabulary](int index) {
      return RandomPrompt(seed, stream, static_cast<uint64_t>(index), length, vocabulary);
    };
    return plan;
  }

  // Small batches until one is no longer faster than the one before it by more than 5 %: caches,
  // page tables and primitive caches are then as they will stay. At most 4, and at most 15 % of the
  // time that is left.
  Status WarmUp() {
    const int64_t start_ns = NowNs();
    const int64_t limit_ns = start_ns + (end_ns_ - start_ns) * 15 / 100;
    double last_s = 0;
    for (int batch = 0; batch < 4 && NowNs() < limit_ns; ++batch) {
      const int clients = std::min(4, request_.workload.num_prompts);
      LoadPlan plan = Plan(kWarmUpStream + (static_cast<uint64_t>(batch) << 20), clients, clients);
      plan.output_len = std::min(8, request_.workload.output_len);
      plan.deadline_ns = plan.last_deadline_ns = limit_ns;
      const int64_t batch_ns = NowNs();
      PINION_ASSIGN(const LoadResult load, RunLoad(engine_, plan));
      const double seconds = SecondsSince(batch_ns);
      ++warm_up_batches_;
      if (load.cut || (batch > 0 && seconds > 0.95 * last_s)) break;
      last_s = seconds;
    }
    warm_up_s_ = SecondsSince(start_ns);
    engine_.DropPrefixCache();
    return {};
  }

  // A phase's part of the time that is left, by its weight among those still to come.
  void SetDeadlines(size_t weight, size_t weights_left, LoadPlan& plan) const {
    const int64_t now_ns = NowNs();
    const auto part = [&](int64_t until_ns) {
      return std::max<int64_t>(0, until_ns - now_ns) * static_cast<int64_t>(weight) /
             static_cast<int64_t>(weights_left);
    };
    // After 60 % of it nothing new is sent, so that what was sent has time to end.
    plan.stop_sending_ns = now_ns + part(end_ns_) * 6 / 10;
    plan.deadline_ns = now_ns + part(end_ns_);
    plan.last_deadline_ns = now_ns + part(last_ns_);
  }

  // The fixed batch, all of it sent at once; weighs as much as two loops.
  Status Offline() {
    const int prompts = request_.workload.num_prompts;
    LoadPlan plan = Plan(kOfflineStream, prompts, prompts);
    SetDeadlines(2, 2 + request_.workload.concurrency.size(), plan);
    plan.stop_sending_ns = INT64_MAX;
    PINION_ASSIGN(const LoadResult load, RunLoad(engine_, plan));
    output_tokens_ += OutputTokens(load);
    PINION_TRY(AddOffline(load));
    engine_.DropPrefixCache();
    return {};
  }

  Status AddOffline(const LoadResult& load) {
    const size_t tokens = OutputTokens(load);
    int64_t first_ns = load.clients.front().times.sent_ns, last_ns = first_ns;
    std::vector<std::vector<int32_t>> outputs;
    for (const ClientTrace& client : load.clients) {
      outputs.push_back(client.tokens);
      if (!client.times.token_ns.empty()) last_ns = std::max(last_ns, client.times.token_ns.back());
    }
    if (tokens == 0 || last_ns <= first_ns) return TooSlow("the offline batch");
    const double window_s = static_cast<double>(last_ns - first_ns) * 1e-9;
    Add("output_tokens_per_s", 0, static_cast<double>(tokens) / window_s);
    if (load.steps.prefill_s > 0) Add("prefill_tokens_per_s", 0, load.steps.prefill_tokens_per_s());
    if (load.steps.decode_s > 0) Add("decode_tokens_per_s", 0, load.steps.decode_tokens_per_s());
    AddWork("prefill", load.steps.prefill_cost, load.steps.prefill_s);
    AddWork("decode", load.steps.decode_cost, load.steps.decode_s);
    AddKv(load.kv, 0);
    if (load.cut) {
      cut_.push_back(StrCat("offline batch cut after ", tokens, " tokens"));
    } else {
      result_.output_hash = HashTokens(outputs);
    }
    return {};
  }

  Status ClosedLoop(size_t index, size_t loops_left) {
    const int clients = request_.workload.concurrency[index];
    LoadPlan plan =
        Plan(kFirstLoopStream + index, clients, std::max(clients, request_.workload.num_prompts));
    SetDeadlines(1, loops_left, plan);
    PINION_ASSIGN(const LoadResult load, RunLoad(engine_, plan));
    output_tokens_ += OutputTokens(load);
    const size_t before = result_.samples.size();
    AddServingSamples(load, clients, result_.samples);
    if (result_.samples.size() == before)
      return TooSlow(StrCat("the loop of ", clients, " clients"));
    AddKv(load.kv, clients);
    AddQuantiles(Summarise(load.CompleteTraces()), clients, quantiles_);
    if (load.cut) cut_.push_back(StrCat("loop of ", clients, " clients cut"));
    engine_.DropPrefixCache();
    return {};
  }

  tl::unexpected<Error> TooSlow(const std::string& what) const {
    return Fail(ErrorCode::kExhausted,
                StrCat("no request of ", what,
                       " got as far as two tokens in its part of the trial's "
                       "limit of ",
                       request_.limit_s, " s; raise trial_limit, or shorten the load"));
  }

  void Add(const std::string& metric, int concurrency, double value) {
    result_.samples.push_back({metric, concurrency, value});
  }

  // Where the phase stands under the machine's roof.
  void AddWork(const std::string& phase, const StepCost& cost, double seconds) {
    if (seconds <= 0) return;
    Add(phase + "_flops_per_s", 0, static_cast<double>(cost.flops) / seconds);
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

  void AddConditions(const Conditions& before, const Conditions& after) {
    result_.suspect = Disturbances(before, after, engine_.info().threads);
    Add("steal_share", 0, StealShare(before, after));
    Add("cpu_pressure_share", 0, PressureShare(before, after));
  }

  // A machine that refuses leaves the trial without them, and its reason.
  void AddCeilings() {
    const auto probe = StartCeilings(engine_);
    if (!probe) {
      result_.info.Set("no_ceilings_because", probe.error().message);
      return;
    }
    const Ceilings ceilings = Larger((*probe)->Measure(), (*probe)->Measure());
    Add("ceiling_flops_per_s", 0, ceilings.flops_per_s);
    Add("ceiling_bytes_per_s", 0, ceilings.read_bytes_per_s);
  }

  void Describe() {
    const EngineInfo& info = engine_.info();
    Add("load_s", 0, info.load_s);
    Add("start_s", 0, info.start_s);
    Add("peak_rss_bytes", 0, static_cast<double>(PeakRssBytes()));
    Json& about = result_.info;
    about.Set("isa", info.isa);
    about.Set("dtype", info.dtype);
    about.Set("threads", info.threads);
    about.Set("ranks", static_cast<int64_t>(info.plan.ranks.size()));
    about.Set("weight_bytes", info.weight_bytes);
    about.Set("kv_bytes", info.kv_bytes);
    about.Set("plan", ToJson(info.plan));
    about.Set("stages", info.stages);
    about.Set("warm_up_s", warm_up_s_);
    about.Set("warm_up_batches", warm_up_batches_);
    about.Set("cut", Json(cut_));
    about.Set("quantiles", std::move(quantiles_));
  }

  Engine& engine_;
  const TrialRequest& request_;
  int64_t end_ns_ = 0;   // where the load aims to end
  int64_t last_ns_ = 0;  // where it ends, whatever has been measured
  double warm_up_s_ = 0;
  int warm_up_batches_ = 0;
  size_t output_tokens_ = 0;  // of the measured load
  std::vector<std::string> cut_;
  Json quantiles_ = Json::MakeArray();
  TrialResult result_;
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
  result.info = *info;
  return result;
}

void AddCounters(const std::vector<CounterReading>& readings, size_t output_tokens,
                 TrialResult& result) {
  result.info.Set("counters", ToJson(readings));
  if (const double* joules = FindValue(readings, "joules"); joules && output_tokens > 0)
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

void AddServingSamples(const LoadResult& load, int concurrency, std::vector<MetricValue>& samples) {
  const std::vector<RequestTrace> complete = load.CompleteTraces();
  const ServingSummary summary = Summarise(complete.empty() ? load.TracesWithDecode() : complete);
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
  if (complete.empty()) return;  // of requests that were cut off, the rest would be made up
  std::vector<double> queue_s, prefill_s;
  for (const ClientTrace& client : load.clients) {
    if (!client.complete) continue;
    queue_s.push_back(client.queue_s);
    prefill_s.push_back(client.prefill_s);
  }
  add("output_tokens_per_s", summary.output_tokens_per_s);
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

Result<TrialResult> MeasureTrial(Engine& engine, const TrialRequest& request, int64_t start_ns) {
  return Measurement(engine, request, start_ns).Run();
}

Result<TrialResult> RunTrial(const TrialRequest& request, int64_t start_ns) {
  PINION_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Start(request.options));
  return MeasureTrial(*engine, request, start_ns);
}

}  // namespace pinion::harness
