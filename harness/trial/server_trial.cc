#include "harness/trial/server_trial.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "engine/run/replicas.h"
#include "harness/engines/replicas.h"
#include "harness/engines/server_counters.h"
#include "harness/load/arrivals.h"
#include "harness/load/generator.h"
#include "harness/load/summary.h"
#include "harness/profile/front.h"
#include "harness/stats/estimate.h"
#include "harness/trial/measurement.h"
#include "harness/trial/runner.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

// CPUs of this process that no rank computes on.
std::vector<int> SpareCpus(const Budget& budget, const Plan& plan) {
  std::vector<int> spare = budget.cpus;
  for (const RankPlan& rank : plan.ranks)
    for (const int cpu : rank.cpus)
      spare.erase(std::remove(spare.begin(), spare.end(), cpu), spare.end());
  const bool pinned = !plan.ranks.empty() && !plan.ranks.front().cpus.empty();
  return pinned ? spare : std::vector<int>();
}

// Clients and tokens of the largest phase; a text may have a few more tokens than requested.
ServedLoad LoadOf(const Workload& workload) {
  constexpr int kSlackTokens = 64;
  // A drawn length is almost never more than four times the median.
  const int spread = workload.name.empty() ? 1 : 4;
  ServedLoad load{workload.num_prompts,
                  workload.shared_prefix +
                      workload.turns * spread * (workload.prompt_len + workload.output_len) +
                      kSlackTokens};
  for (const int clients : workload.concurrency) load.clients = std::max(load.clients, clients);
  return load;
}

// A configuration's servers under one request's load.
class ServerMeasurement final : public Measurement {
 public:
  ServerMeasurement(Replicas& servers, const TrialRequest& request, int64_t start_ns,
                    std::vector<int> cpus, std::function<bool()> interrupted)
      : Measurement(request, start_ns),
        servers_(servers),
        urls_(servers.urls()),
        cpus_(std::move(cpus)),
        interrupted_(std::move(interrupted)) {}

  // Asks the first server for its model's name and how it counts made-up text: all are alike.
  Status Ask() {
    constexpr double kPatienceSeconds = 600;
    PINION_ASSIGN(style_.endpoint, ParseEndpoint(request().engine.endpoint));
    PINION_ASSIGN(const ServedModel served, FindServedModel(urls_.front(), {}));
    style_.model = served.name;
    longest_ = served.longest;
    LoadPhase phase;
    phase.stop_sending_s = phase.deadline_s = phase.last_deadline_s = kPatienceSeconds;
    PINION_ASSIGN(scale_, MeasureTokenScale(urls_.front(), Plan(phase)));
    return {};
  }

 private:
  // The same texts for every candidate of a round, with lengths as its server counts them.
  ServerLoadPlan Plan(const LoadPhase& phase) const {
    ServerLoadPlan plan;
    plan.style = style_;
    plan.conversations =
        MakeConversations(ShapeOf(request().workload), static_cast<size_t>(phase.requests),
                          request().seed ^ (phase.stream << 32), scale_, longest_);
    plan.longest = longest_;
    plan.concurrency = phase.rate ? 0 : phase.clients;
    plan.cpus = cpus_;
    // If one of the servers has ended, the rest of the load would be meaningless.
    plan.interrupted = [this] { return interrupted_() || !servers_.WhyEnded().empty(); };
    plan.stop_sending_s = phase.stop_sending_s;
    plan.deadline_s = phase.deadline_s;
    plan.last_deadline_s = phase.last_deadline_s;
    if (phase.rate)
      plan.arrival_s = ArrivalSeconds({*phase.rate, 1, {}}, static_cast<size_t>(phase.requests),
                                      request().seed ^ phase.stream);
    for (Conversation& one : plan.conversations) {
      if (phase.most_output == 0) break;
      one.turns.resize(1);
      one.turns[0].output_len = std::min(phase.most_output, one.turns[0].output_len);
    }
    return plan;
  }

  // Fails if a server has ended.
  Result<ServerLoadResult> Send(const LoadPhase& phase) {
    PINION_ASSIGN(ServerLoadResult load, RunServerLoad(urls_, Plan(phase)));
    if (const std::string why = servers_.WhyEnded(); !why.empty())
      return Fail(ErrorCode::kFailed, StrCat(why, " under load"));
    if (load.interrupted) return Fail(ErrorCode::kExhausted, "interrupted");
    return load;
  }

  // If no request was answered: the first error, other than a lack of time.
  Status CheckAnswered(const ServerLoadResult& load) {
    const bool any = std::any_of(load.requests.begin(), load.requests.end(),
                                 [](const RequestRecord& one) { return one.complete(); });
    if (any || load.requests.empty()) return {};
    const std::string no_answer =
        StrCat("no request was answered within ", request().limit_s, " s of the trial");
    const auto refused = std::find_if(load.requests.begin(), load.requests.end(),
                                      [](const RequestRecord& one) { return !one.cut; });
    if (refused == load.requests.end()) return TooSlow(no_answer);
    return Fail(ErrorCode::kFailed, StrCat(no_answer, ": ", refused->error));
  }

  Result<bool> WarmUp(const LoadPhase& asked) override {
    LoadPhase phase = asked;
    phase.clients = phase.requests = std::max(asked.clients, static_cast<int>(urls_.size()));
    PINION_ASSIGN(const ServerLoadResult load, Send(phase));
    for (const RequestRecord& one : load.requests) CountOutput(one.tokens());
    return std::none_of(load.requests.begin(), load.requests.end(),
                        [](const RequestRecord& one) { return one.cut; });
  }

  Status Offline(const LoadPhase& phase) override { return Take(phase, 0, "offline batch"); }

  Status ClosedLoop(const LoadPhase& phase) override {
    return Take(phase, phase.clients, LoopName(phase));
  }

  Result<LevelRun> Level(const LoadPhase& phase, const Slo& limits) override {
    PINION_ASSIGN(const ServerLoadResult load, Send(phase));
    LevelRun level;
    for (const RequestRecord& one : load.requests) {
      CountOutput(one.tokens());
      const RequestTrace times{load.open_loop ? one.scheduled_ns : one.sent_ns, one.token_ns,
                               one.tokens()};
      Judge(times, one.complete(), one.cut ? load.end_ns : INT64_MAX, limits, level);
    }
    return level;
  }

  Status Take(const LoadPhase& phase, int concurrency, const std::string& name) {
    const auto before = CountersOf(urls_);
    PINION_ASSIGN(const ServerLoadResult load, Send(phase));
    PINION_TRY(CheckAnswered(load));
    if (const auto after = CountersOf(urls_); before && after)
      AddCounted(*after - *before, concurrency);
    const ServingSummary summary = Summarise(TracesOf(load), limits());
    size_t failed = 0;
    for (const RequestRecord& one : load.requests) {
      CountOutput(one.tokens());
      failed += !one.complete() && !one.cut ? 1 : 0;
    }
    if (failed > 0) Suspect(StrCat(failed, " requests of the ", name, " failed"));
    if (load.requests.size() > summary.requests + failed) Cut(name + " cut");
    for (const std::string& fault : GeneratorFaults(load)) Suspect(fault);
    generator_cpu_share_ = std::max(generator_cpu_share_, load.generator.cpu_share);
    late_share_ = std::max(late_share_, LateShare(load));
    AddSamples(summary, concurrency);
    return {};
  }

  void AddCounted(const ServerCounters& counted, int concurrency) {
    Add("preemptions", concurrency, counted.preemptions);
    if (counted.prefix_query_tokens > 0)
      Add("prefix_hit_share", concurrency, counted.prefix_hit_tokens / counted.prefix_query_tokens);
  }

  void AddSamples(const ServingSummary& summary, int concurrency) {
    Add("output_tokens_per_s", concurrency, summary.output_tokens_per_s);
    if (concurrency == 0) return;
    if (request().workload.slo) Add("goodput", concurrency, summary.goodput);
    const auto add_median = [&](const char* metric, const std::vector<double>& values) {
      if (!values.empty()) Add(metric, concurrency, Median(values));
    };
    const auto add_quantile = [&](const char* metric, const std::vector<double>& values, double q) {
      if (const auto value = SupportedQuantile(values, q)) Add(metric, concurrency, *value);
    };
    Distribute(summary, concurrency);
    add_median("ttft_s", summary.ttft_s);
    add_median("tpot_s", summary.tpot_s);
    add_median("itl_s", summary.itl_s);
    add_median("e2el_s", summary.e2el_s);
    add_quantile("itl_p90_s", summary.itl_s, 0.90);
    add_quantile("itl_p99_s", summary.itl_s, 0.99);
    add_quantile("ttft_p90_s", summary.ttft_s, 0.90);
  }

  void Describe(Json& about) override {
    Add("start_s", 0, servers_.start_s());
    Add("peak_rss_bytes", 0, static_cast<double>(servers_.peak_rss_bytes()));
    about.Set("engine", Name(request().engine.kind));
    about.Set("replicas", request().replicas);
    if (request().engine.is_pinion()) TakeServerInfo(about);
    about.Set("model", style_.model);
    about.Set("tokens_per_word", scale_.is_known ? Json(scale_.per_word) : Json());
    Json generator = Json::MakeObject();
    generator.Set("cpus", Json(cpus_));
    generator.Set("cpu_share", generator_cpu_share_);
    generator.Set("late_share", late_share_);
    about.Set("generator", std::move(generator));
  }

  // What Pinion's servers report: path and type of the first one, bytes of all.
  void TakeServerInfo(Json& about) const {
    constexpr double kPatienceSeconds = 10;
    int64_t weight_bytes = 0, kv_bytes = 0;
    for (const ServerUrl& url : urls_) {
      const auto text = HttpFetch(url, "/server_info", kPatienceSeconds);
      const auto info = text ? Json::Parse(*text) : Unexpected(text.error());
      if (!info) continue;
      for (const char* key : {"isa", "dtype"})
        if (const Json* value = info->Find(key); value && !about.Find(key)) about.Set(key, *value);
      weight_bytes += Optional<int64_t>(*info, "weight_bytes", 0).value_or(0);
      const Json* kv = info->Find("kv_cache");
      kv_bytes += kv ? Optional<int64_t>(*kv, "bytes", 0).value_or(0) : 0;
    }
    about.Set("weight_bytes", weight_bytes);
    about.Set("kv_bytes", kv_bytes);
    about.Set("no_ceilings_because",
              "configurations with several replicas are compared as servers, and those are probed "
              "neither before nor after their load");
  }

  Replicas& servers_;
  const std::vector<ServerUrl> urls_;
  const std::vector<int> cpus_;
  const std::function<bool()> interrupted_;
  RequestStyle style_;
  TokenScale scale_;
  int longest_ = 0;  // most tokens of a prompt and its answer; 0: unknown
  double generator_cpu_share_ = 0, late_share_ = 0;  // the worst of all phases
};

// The commands of a trial's servers, and the forms that a user would type.
struct ServedPlan {
  Machine machine;
  Budget budget;
  EngineOptions options;
  pinion::Plan whole;
  ServedLoad load;

  Result<std::vector<EngineCommand>> Commands(const EngineChoice& engine,
                                              const std::vector<int>& ports) const {
    return CommandsFor(engine, options, whole, machine, ports, load);
  }
};

Result<ServedPlan> PlanServers(const TrialRequest& request) {
  ServedPlan plan;
  PINION_ASSIGN(plan.machine, ThisMachine());
  PINION_ASSIGN(plan.budget, ComputeBudget(plan.machine));
  plan.options = request.options;
  plan.load = LoadOf(request.workload);
  PINION_ASSIGN(plan.whole,
                PlanReplicas(plan.options, request.replicas, plan.machine, plan.budget));
  const bool ours = request.engine.is_pinion() && request.replicas > 1;
  if (ours && !plan.options.kv_cache_bytes) {
    PINION_ASSIGN(plan.options.kv_cache_bytes,
                  KvShareBytes(plan.options, request.replicas, plan.budget));
  }
  if (request.replicas > 1)
    LogInfo(StrCat(request.replicas, " replicas, each with ",
                   plan.options.kv_cache_bytes
                       ? FormatBytes(*plan.options.kv_cache_bytes) + " of KV space per rank"
                       : std::string("the KV space that its engine takes")));
  return plan;
}

// One line per server, on the ports that follow the proxy's.
Result<std::string> ShownCommand(const ServedPlan& plan, const TrialRequest& request) {
  std::vector<int> ports;
  for (int index = 0; index < request.replicas; ++index)
    ports.push_back(request.replicas == 1 ? kUsualPort : ReplicaPort(kUsualPort, index));
  PINION_ASSIGN(const auto commands, plan.Commands(request.engine, ports));
  std::vector<std::string> lines;
  for (const EngineCommand& command : commands)
    lines.push_back(
        ShellText(request.replicas == 1 ? command.command : OnCpus(command.command, command.cpus)));
  return Join(lines, "\n");
}

Result<TrialResult> MeasureServers(Replicas& servers, const TrialRequest& request, int64_t start_ns,
                                   const std::function<bool()>& interrupted) {
  PINION_ASSIGN(const ServedPlan plan, PlanServers(request));
  PINION_ASSIGN(const std::vector<int> ports, FreePorts(static_cast<size_t>(request.replicas)));
  PINION_ASSIGN(const auto commands, plan.Commands(request.engine, ports));
  PINION_TRY(servers.Start(request.engine, commands, ports, request.log, interrupted));
  ServerMeasurement measurement(servers, request, start_ns, SpareCpus(plan.budget, plan.whole),
                                interrupted);
  PINION_TRY(measurement.Ask());
  PINION_ASSIGN(TrialResult result, measurement.Run({servers.processes()}, 1));
  result.info.Set("plan", ToJson(plan.whole));
  result.info.Set("threads", plan.whole.total_threads());
  result.info.Set("ranks", static_cast<int64_t>(plan.whole.ranks.size()));
  result.info.Set("ignored_settings", Json(commands.front().ignored));
  if (request.engine.is_pinion()) return result;  // `pinion launch` starts the profile instead
  PINION_ASSIGN(const std::string shown, ShownCommand(plan, request));
  result.info.Set("command", shown);
  return result;
}

}  // namespace

Result<TrialResult> RunServerTrial(const TrialRequest& request, int64_t start_ns,
                                   const std::function<bool()>& interrupted) {
  Replicas servers;
  auto result = MeasureServers(servers, request, start_ns, interrupted);
  if (result) return result;
  for (const std::string& log : servers.LogsOfEnded())
    std::fprintf(stderr, "the end of %s:\n%s\n", log.c_str(), LogTail(log).c_str());
  return result;
}

}  // namespace pinion::harness
