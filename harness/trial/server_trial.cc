#include "harness/trial/server_trial.h"

#include <algorithm>
#include <memory>

#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "engine/run/start.h"
#include "harness/engines/server.h"
#include "harness/load/arrivals.h"
#include "harness/load/generator.h"
#include "harness/load/summary.h"
#include "harness/stats/estimate.h"
#include "harness/trial/measurement.h"
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

// The longest loop or the offline batch; a text may come to some tokens more than was asked for.
ServedLoad LoadOf(const Workload& workload) {
  constexpr int kSlackTokens = 64;
  // A drawn length is hardly ever more than four times the median.
  const int spread = workload.name.empty() ? 1 : 4;
  ServedLoad load{workload.num_prompts,
                  workload.shared_prefix +
                      workload.turns * spread * (workload.prompt_len + workload.output_len) +
                      kSlackTokens};
  for (const int clients : workload.concurrency) load.clients = std::max(load.clients, clients);
  return load;
}

// Another engine's server under one request's load.
class ServerMeasurement final : public Measurement {
 public:
  ServerMeasurement(EngineServer& server, const TrialRequest& request, int64_t start_ns,
                    std::vector<int> cpus, std::function<bool()> interrupted)
      : Measurement(request, start_ns),
        server_(server),
        cpus_(std::move(cpus)),
        interrupted_(std::move(interrupted)) {}

  // What it calls its model, and how it counts made-up text.
  Status Ask() {
    constexpr double kPatienceSeconds = 600;
    PINION_ASSIGN(style_.endpoint, ParseEndpoint(request().engine.endpoint));
    PINION_ASSIGN(style_.model, FindServedModel(server_.url(), ""));
    LoadPhase phase;
    phase.stop_sending_s = phase.deadline_s = phase.last_deadline_s = kPatienceSeconds;
    PINION_ASSIGN(scale_, MeasureTokenScale(server_.url(), Plan(phase)));
    return {};
  }

 private:
  // The same texts for every candidate of a round, at the length that its server counts.
  ServerLoadPlan Plan(const LoadPhase& phase) const {
    ServerLoadPlan plan;
    plan.style = style_;
    plan.conversations =
        MakeConversations(ShapeOf(request().workload), static_cast<size_t>(phase.requests),
                          request().seed ^ (phase.stream << 32), scale_);
    plan.concurrency = phase.rate ? 0 : phase.clients;
    plan.cpus = cpus_;
    plan.interrupted = interrupted_;
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

  // Fails where the server ended, or nothing at all came back.
  Result<ServerLoadResult> Send(const LoadPhase& phase) {
    PINION_ASSIGN(ServerLoadResult load, RunServerLoad(server_.url(), Plan(phase)));
    if (const std::string why = server_.WhyEnded(); !why.empty())
      return Fail(ErrorCode::kFailed, StrCat("the server ", why, " under load"));
    if (load.interrupted) return Fail(ErrorCode::kExhausted, "interrupted");
    return load;
  }

  // The first reason why nothing at all came back.
  Status CheckAnswered(const ServerLoadResult& load) const {
    const bool any = std::any_of(load.requests.begin(), load.requests.end(),
                                 [](const RequestRecord& one) { return one.complete(); });
    if (any || load.requests.empty()) return {};
    return Fail(ErrorCode::kFailed, StrCat("no request was answered within ", request().limit_s,
                                           " s of the trial: ", load.requests.front().error));
  }

  Result<bool> WarmUp(const LoadPhase& phase) override {
    PINION_ASSIGN(const ServerLoadResult load, Send(phase));
    for (const RequestRecord& one : load.requests) CountOutput(one.tokens());
    return std::none_of(load.requests.begin(), load.requests.end(),
                        [](const RequestRecord& one) { return one.cut; });
  }

  Status Offline(const LoadPhase& phase) override { return Take(phase, 0, "offline batch"); }

  Status ClosedLoop(const LoadPhase& phase) override {
    return Take(phase, phase.clients, StrCat("loop of ", phase.clients, " clients"));
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
    PINION_ASSIGN(const ServerLoadResult load, Send(phase));
    PINION_TRY(CheckAnswered(load));
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
    Add("start_s", 0, server_.start_s());
    Add("peak_rss_bytes", 0, static_cast<double>(server_.peak_rss_bytes()));
    about.Set("engine", Name(request().engine.kind));
    about.Set("model", style_.model);
    about.Set("tokens_per_word", scale_.is_known ? Json(scale_.per_word) : Json());
    Json generator = Json::MakeObject();
    generator.Set("cpus", Json(cpus_));
    generator.Set("cpu_share", generator_cpu_share_);
    generator.Set("late_share", late_share_);
    about.Set("generator", std::move(generator));
  }

  EngineServer& server_;
  const std::vector<int> cpus_;
  const std::function<bool()> interrupted_;
  RequestStyle style_;
  TokenScale scale_;
  double generator_cpu_share_ = 0, late_share_ = 0;  // the worst of all phases
};

}  // namespace

Result<TrialResult> RunServerTrial(const TrialRequest& request, int64_t start_ns,
                                   const std::function<bool()>& interrupted) {
  PINION_ASSIGN(const Machine machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(machine));
  PINION_ASSIGN(const pinion::Plan plan, PlanFor(request.options, machine, budget));
  PINION_ASSIGN(const int port, FreePort());
  const ServedLoad load = LoadOf(request.workload);
  PINION_ASSIGN(const EngineCommand command,
                CommandFor(request.engine, request.options, plan, machine, port, load));
  PINION_ASSIGN(const std::unique_ptr<EngineServer> server,
                EngineServer::Start(request.engine, command, port, interrupted));
  ServerMeasurement measurement(*server, request, start_ns, SpareCpus(budget, plan), interrupted);
  PINION_TRY(measurement.Ask());
  PINION_ASSIGN(TrialResult result, measurement.Run({server->processes()}, 1));
  result.info.Set("plan", ToJson(plan));
  result.info.Set("threads", plan.total_threads());
  result.info.Set("ranks", static_cast<int64_t>(plan.ranks.size()));
  // As a person would start it.
  constexpr int kUsualPort = 8000;
  PINION_ASSIGN(const EngineCommand shown,
                CommandFor(request.engine, request.options, plan, machine, kUsualPort, load));
  result.info.Set("command", ShellText(shown.command));
  result.info.Set("ignored_settings", Json(command.ignored));
  return result;
}

}  // namespace pinion::harness
