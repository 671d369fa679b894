#include "harness/trial/server_trial.h"

#include <algorithm>
#include <memory>

#include "engine/base/clock.h"
#include "engine/base/strings.h"
#include "engine/host/budget.h"
#include "engine/run/start.h"
#include "harness/counters/counters.h"
#include "harness/engines/server.h"
#include "harness/load/generator.h"
#include "harness/load/summary.h"
#include "harness/stats/estimate.h"
#include "harness/trial/conditions.h"

namespace pinion::harness {
namespace {

constexpr uint64_t kWarmUpStream = 0, kOfflineStream = 1, kFirstLoopStream = 2;

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
  ServedLoad load{workload.num_prompts, workload.prompt_len + workload.output_len + kSlackTokens};
  for (const int clients : workload.concurrency) load.clients = std::max(load.clients, clients);
  return load;
}

class ServerMeasurement {
 public:
  ServerMeasurement(EngineServer& server, const TrialRequest& request, int64_t start_ns,
                    std::vector<int> cpus, std::function<bool()> interrupted)
      : server_(server),
        request_(request),
        cpus_(std::move(cpus)),
        interrupted_(std::move(interrupted)) {
    // The limit counts from the start, but a slow start must not leave it unmeasured.
    const double spent_s = SecondsSince(start_ns);
    left_until_ns_ = NowNs() + static_cast<int64_t>(
                                   1e9 * std::max(request.limit_s - spent_s, request.limit_s / 2));
  }

  Result<TrialResult> Run() {
    PINION_ASSIGN(style_.endpoint, ParseEndpoint(request_.engine.endpoint));
    PINION_ASSIGN(style_.model, FindServedModel(server_.url(), ""));
    PINION_ASSIGN(scale_, MeasureTokenScale(server_.url(), Plan(kWarmUpStream, 1, 1)));
    PINION_TRY(WarmUp());
    const Conditions before = Conditions::Now();
    Counters counters = Counters::Start({server_.processes()});
    const auto& loops = request_.workload.concurrency;
    PINION_TRY(Offline(2 + loops.size()));
    for (size_t i = 0; i < loops.size(); ++i) PINION_TRY(ClosedLoop(i, loops.size() - i));
    AddCounters(counters.Stop(), output_tokens_, result_);
    const Conditions after = Conditions::Now();
    for (std::string& reason : Disturbances(before, after, 1)) Suspect(reason);
    Add("steal_share", 0, StealShare(before, after));
    Add("cpu_pressure_share", 0, PressureShare(before, after));
    Describe();
    return std::move(result_);
  }

 private:
  double LeftSeconds() const {
    return std::max(0.0, static_cast<double>(left_until_ns_ - NowNs()) * 1e-9);
  }

  // The same texts for every candidate of a round, at the length that its server counts.
  ServerLoadPlan Plan(uint64_t stream, int clients, int requests) const {
    WorkloadShape shape;
    shape.prompt = Lengths::Fixed(request_.workload.prompt_len);
    shape.output = Lengths::Fixed(request_.workload.output_len);
    ServerLoadPlan plan;
    plan.style = style_;
    plan.conversations = MakeConversations(shape, static_cast<size_t>(requests),
                                           request_.seed ^ (stream << 32), scale_);
    plan.concurrency = clients;
    plan.cpus = cpus_;
    plan.interrupted = interrupted_;
    plan.deadline_s = std::max(LeftSeconds(), kLeastSeconds);
    return plan;
  }

  // As ours: small batches until one is no longer faster by more than 5 %; at most 4, and 15 % of
  // the time.
  Status WarmUp() {
    const int64_t start_ns = NowNs();
    const double limit_s = LeftSeconds() * 0.15;
    double last_s = 0;
    for (uint64_t batch = 0; batch < 4 && SecondsSince(start_ns) < limit_s; ++batch) {
      const int clients = std::min(4, request_.workload.num_prompts);
      ServerLoadPlan plan = Plan(kWarmUpStream + (batch << 20), clients, clients);
      for (Conversation& one : plan.conversations)
        one.turns[0].output_len = std::min(8, one.turns[0].output_len);
      const int64_t batch_ns = NowNs();
      PINION_ASSIGN(const ServerLoadResult load, RunServerLoad(server_.url(), plan));
      PINION_TRY(CheckAlive(load));
      const double seconds = SecondsSince(batch_ns);
      ++warm_up_batches_;
      if (batch > 0 && seconds > 0.95 * last_s) break;
      last_s = seconds;
    }
    warm_up_s_ = SecondsSince(start_ns);
    return {};
  }

  // The first reason why nothing at all came back.
  Status CheckAlive(const ServerLoadResult& load) {
    if (const std::string why = server_.WhyEnded(); !why.empty())
      return Fail(ErrorCode::kFailed, StrCat("the server ", why, " under load"));
    if (load.interrupted) return Fail(ErrorCode::kExhausted, "interrupted");
    const bool any = std::any_of(load.requests.begin(), load.requests.end(),
                                 [](const RequestRecord& one) { return one.complete(); });
    if (any || load.requests.empty()) return {};
    return Fail(ErrorCode::kFailed, StrCat("no request was answered within ", request_.limit_s,
                                           " s of the trial: ", load.requests.front().error));
  }

  // A phase's part of the time that is left; after 60 % of it nothing new is sent.
  void SetDeadlines(size_t weight, size_t weights_left, ServerLoadPlan& plan) const {
    const double part_s = std::max(kLeastSeconds, LeftSeconds() * static_cast<double>(weight) /
                                                      static_cast<double>(weights_left));
    plan.stop_sending_s = 0.6 * part_s;
    plan.deadline_s = part_s;
    // As ours: a slow machine must not leave a candidate unmeasured.
    plan.last_deadline_s = part_s + request_.limit_s / 2;
  }

  Status Offline(size_t weights) {
    const int prompts = request_.workload.num_prompts;
    ServerLoadPlan plan = Plan(kOfflineStream, prompts, prompts);
    SetDeadlines(2, weights, plan);
    PINION_ASSIGN(const ServerLoadResult load, RunServerLoad(server_.url(), plan));
    PINION_TRY(Take(load, 0, "offline batch"));
    return {};
  }

  Status ClosedLoop(size_t index, size_t loops_left) {
    const int clients = request_.workload.concurrency[index];
    ServerLoadPlan plan =
        Plan(kFirstLoopStream + index, clients, std::max(clients, request_.workload.num_prompts));
    SetDeadlines(1, loops_left, plan);
    PINION_ASSIGN(const ServerLoadResult load, RunServerLoad(server_.url(), plan));
    return Take(load, clients, StrCat("loop of ", clients, " clients"));
  }

  Status Take(const ServerLoadResult& load, int concurrency, const std::string& phase) {
    PINION_TRY(CheckAlive(load));
    const ServingSummary summary = Summarise(TracesOf(load));
    for (const RequestRecord& one : load.requests) output_tokens_ += one.tokens();
    size_t failed = 0;
    for (const RequestRecord& one : load.requests) failed += !one.complete() && !one.cut ? 1 : 0;
    if (failed > 0) Suspect(StrCat(failed, " requests of the ", phase, " failed"));
    if (load.requests.size() > summary.requests + failed) cut_.push_back(phase + " cut");
    for (std::string& fault : GeneratorFaults(load)) Suspect(fault);
    generator_cpu_share_ = std::max(generator_cpu_share_, load.generator.cpu_share);
    late_share_ = std::max(late_share_, LateShare(load));
    Add("output_tokens_per_s", concurrency, summary.output_tokens_per_s);
    if (concurrency == 0) return {};
    const auto add_median = [&](const char* metric, const std::vector<double>& values) {
      if (!values.empty()) Add(metric, concurrency, Median(values));
    };
    const auto add_quantile = [&](const char* metric, const std::vector<double>& values, double q) {
      if (const auto value = SupportedQuantile(values, q)) Add(metric, concurrency, *value);
    };
    AddQuantiles(summary, concurrency, quantiles_);
    add_median("ttft_s", summary.ttft_s);
    add_median("tpot_s", summary.tpot_s);
    add_median("itl_s", summary.itl_s);
    add_median("e2el_s", summary.e2el_s);
    add_quantile("itl_p90_s", summary.itl_s, 0.90);
    add_quantile("itl_p99_s", summary.itl_s, 0.99);
    add_quantile("ttft_p90_s", summary.ttft_s, 0.90);
    return {};
  }

  void Add(const char* metric, int concurrency, double value) {
    result_.samples.push_back({metric, concurrency, value});
  }

  void Suspect(const std::string& reason) {
    if (std::find(result_.suspect.begin(), result_.suspect.end(), reason) == result_.suspect.end())
      result_.suspect.push_back(reason);
  }

  void Describe() {
    Add("start_s", 0, server_.start_s());
    Add("peak_rss_bytes", 0, static_cast<double>(server_.peak_rss_bytes()));
    Json& about = result_.info;
    about.Set("engine", Name(request_.engine.kind));
    about.Set("model", style_.model);
    about.Set("tokens_per_word", scale_.is_known ? Json(scale_.per_word) : Json());
    Json generator = Json::MakeObject();
    generator.Set("cpus", Json(cpus_));
    generator.Set("cpu_share", generator_cpu_share_);
    generator.Set("late_share", late_share_);
    about.Set("generator", std::move(generator));
    about.Set("warm_up_s", warm_up_s_);
    about.Set("warm_up_batches", warm_up_batches_);
    about.Set("cut", Json(cut_));
    about.Set("quantiles", std::move(quantiles_));
  }

  static constexpr double kLeastSeconds = 1;

  EngineServer& server_;
  const TrialRequest& request_;
  const std::vector<int> cpus_;
  const std::function<bool()> interrupted_;
  int64_t left_until_ns_ = 0;
  RequestStyle style_;
  TokenScale scale_;
  double warm_up_s_ = 0;
  int warm_up_batches_ = 0;
  size_t output_tokens_ = 0;                         // of the measured load
  double generator_cpu_share_ = 0, late_share_ = 0;  // the worst of all phases
  std::vector<std::string> cut_;
  Json quantiles_ = Json::MakeArray();
  TrialResult result_;
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
  PINION_ASSIGN(TrialResult result, measurement.Run());
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
