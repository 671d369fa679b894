#include "harness/trial/trial_server.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "engine/run/replicas.h"
#include "harness/counters/at_rest.h"
#include "harness/load/http_client.h"
#include "harness/trial/runner.h"

namespace pinion::harness {
namespace {

// Clients and tokens of the largest phase; a text may have a few more tokens than requested.
ServedLoad LoadOf(const Workload& workload) {
  constexpr int kSlackTokens = 64;
  // A drawn length is almost never more than four times the median.
  const WorkloadShape& shape = workload.load.shape;
  const int spread = shape.prompt.kind == Lengths::Kind::kFixed ? 1 : 4;
  return {std::max(workload.most_clients(), workload.load.num_prompts),
          shape.shared_prefix + shape.turns * spread * (shape.prompt_len() + shape.output_len()) +
              kSlackTokens};
}

constexpr char kRaiseTheLimit[] = "; raise --trial-limit, or stop other programs on this machine";

// The last error in a server's log, without the program's name or the time; "" if there is none.
std::string LastError(const std::string& log) {
  constexpr std::string_view kName = "pinion: ", kTime = "00:00:00.000", kError = " E ";
  const std::vector<std::string> lines = Split(LogTail(log), '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (line->starts_with(kName)) return line->substr(kName.size());
    if (line->find(kError) == kTime.size()) return line->substr(kTime.size() + kError.size());
  }
  return "";
}

// How long to wait for the end of a server that left requests without any answer: it refuses
// connections a moment before its process has ended.
double EndingSeconds(const ServerLoadResult& load) {
  constexpr double kPatienceSeconds = 2;
  const bool unanswered =
      std::any_of(load.requests.begin(), load.requests.end(),
                  [](const RequestRecord& one) { return one.status == 0 && !one.cut; });
  return unanswered ? kPatienceSeconds : 0;
}

}  // namespace

std::optional<std::vector<int>> SpareCpus(const Budget& budget, const pinion::Plan& plan) {
  std::vector<int> used = plan.frontend_cpus;
  for (const RankPlan& rank : plan.ranks) {
    if (rank.cpus.empty()) return std::nullopt;  // it may run anywhere
    used.insert(used.end(), rank.cpus.begin(), rank.cpus.end());
  }
  std::vector<int> spare;
  for (const int cpu : budget.cpus)
    if (std::find(used.begin(), used.end(), cpu) == used.end()) spare.push_back(cpu);
  return spare.empty() ? std::nullopt : std::optional(spare);
}

Result<EngineCommand> ServerPlan::CommandOn(int port, const EngineChoice& engine) const {
  return CommandFor(engine, configuration, whole, machine, port, load);
}

Result<ServerPlan> PlanServer(const TrialRequest& request) {
  ServerPlan plan;
  PINION_ASSIGN(plan.machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(plan.machine));
  plan.configuration = request.configuration;
  plan.load = LoadOf(request.workload);
  const Configuration& all = plan.configuration;
  PINION_ASSIGN(plan.whole, PlanReplicas(all.options, all.replicas, plan.machine, budget));
  plan.generator_cpus = SpareCpus(budget, plan.whole);
  return plan;
}

Result<std::string> ShownCommand(const ServerPlan& plan, const TrialRequest& request) {
  PINION_ASSIGN(EngineCommand made, plan.CommandOn(kUsualPort, request.engine));
  // The sweep gave this process the preloads of its configuration, and the server inherits them.
  if (const char* preload = std::getenv("LD_PRELOAD"); preload && *preload)
    made.command.environment.emplace(made.command.environment.begin(), "LD_PRELOAD", preload);
  return ShellText(made.command);
}

Result<std::unique_ptr<TrialServer>> TrialServer::Start(const TrialRequest& request,
                                                        const ServerPlan& plan, int64_t start_ns,
                                                        std::function<bool()> interrupted,
                                                        int log_fd) {
  std::unique_ptr<TrialServer> made(
      new TrialServer(request, plan, start_ns, std::move(interrupted)));
  const Status started = made->StartAndWait(log_fd);
  if (started) return made;
  const std::string ended = made->WhyEnded("", 0);
  return Fail(started.error().code, ended.empty() ? started.error().message : ended);
}

Status TrialServer::StartAndWait(int log_fd) {
  PINION_ASSIGN(const int port, FreePort());
  PINION_ASSIGN(const EngineCommand made, plan_.CommandOn(port, request_.engine));
  ignored_ = made.ignored;
  PINION_ASSIGN(generator_, GeneratorProcess::Start(plan_.generator_cpus));
  PINION_ASSIGN(server_, EngineServer::Start(made, port, log_fd));
  PINION_TRY(WaitUntilReady());
  return Ask();
}

// Another engine's time is its own setting; ours has the trial's.
Status TrialServer::WaitUntilReady() {
  const EngineChoice& engine = request_.engine;
  const double left_s = std::max(0.0, deadline_.SecondsUntil(kReadyShare));
  const Status ready =
      server_->WaitUntilReady(engine, std::min(engine.start_timeout_s, left_s), interrupted_);
  if (ready) return {};
  const std::string why = StrCat("the server ", ready.error().message);
  if (ready.error().code != ErrorCode::kTimeout) return Fail(ready.error().code, why);
  if (engine.is_pinion()) return Fail(ErrorCode::kTimeout, StrCat(why, kRaiseTheLimit));
  return Fail(ErrorCode::kFailed, StrCat(why, "; raise 'start_timeout' or correct 'health'"));
}

// Asks the server for its model's name and how it counts made-up text.
Status TrialServer::Ask() {
  loaded_.url = server_->url();
  PINION_ASSIGN(loaded_.style.endpoint, ParseEndpoint(request_.engine.endpoint));
  PINION_TRY(FindServedModel(loaded_));
  return MeasureScale();
}

Status TrialServer::MeasureScale() {
  constexpr double kPatienceSeconds = 600;
  constexpr int kRequests = 2;
  const double deadline_s = std::min(
      kPatienceSeconds, std::max(0.0, deadline_.SecondsUntil(kFirstAnswerShare)) / kRequests);
  const Status found = MeasureTokenScale(loaded_, deadline_s, {.interrupted = interrupted_});
  if (found || found.error().code != ErrorCode::kTimeout) return found;
  return Fail(request_.engine.is_pinion() ? ErrorCode::kTimeout : ErrorCode::kFailed,
              found.error().message + kRaiseTheLimit);
}

Result<PhaseResult> TrialServer::Send(const LoadPlan& phase) {
  const auto before = CountersOf(server_->url());
  PhaseResult result;
  int64_t looked_ns = 0;
  const auto why_stop = [&] {
    // Once a second: a look costs the front end a millisecond.
    if (before && SecondsSince(looked_ns) >= 1) {
      looked_ns = NowNs();
      if (const auto now = CountersOf(server_->url()))
        result.kv_used_share = std::max(result.kv_used_share.value_or(0), now->kv_used_share);
    }
    return WhyStop(0);
  };
  auto load = generator_->Send(loaded_, phase, why_stop);
  if (const std::string why = WhyStop(load ? EndingSeconds(*load) : 0); !why.empty())
    return Fail(ErrorCode::kFailed, why);
  if (!load) return Unexpected(std::move(load).error());
  result.load = std::move(*load);
  const auto after = CountersOf(server_->url());
  if (before && after) result.counted = *after - *before;
  return result;
}

void TrialServer::Settle(double limit_s) {
  AwaitRest(processes(), limit_s, [&] { return !WhyStop(0).empty(); });
}

// If the server has ended, the rest of the load would be meaningless.
std::string TrialServer::WhyStop(double patience_s) {
  if (interrupted_()) return "interrupted";
  if (deadline_.SecondsUntil(kGeneratorShare) < 0)
    return StrCat("the load generator had not ended its load ",
                  std::round(kGeneratorShare * *deadline_.deadline_s), " s after the trial's start",
                  kRaiseTheLimit);
  return WhyEnded(" under load", patience_s);
}

// "the server ended with exit code 1 under load: cannot reserve 1 GiB ..."; empty while all run.
std::string TrialServer::WhyEnded(const char* when, double patience_s) {
  const std::string why = server_ ? server_->WhyEnded(patience_s) : "";
  if (why.empty()) return "";
  const std::string error = LastError(request_.log);
  return StrCat("the server ", why, when, error.empty() ? "" : ": ", error);
}

void TrialServer::Describe(TrialResult& result) const {
  const auto add = [&](const char* metric, double value) {
    result.samples.push_back({metric, 0, value});
  };
  add("start_s", server_->start_s());
  add("peak_rss_bytes", static_cast<double>(server_->peak_rss_bytes()));
  TrialInfo& info = result.info;
  info.plan = plan_.whole;
  info.threads = plan_.whole.total_threads();
  info.ranks = static_cast<int>(plan_.whole.ranks.size());
  info.ignored_settings = ignored_;
  if (info.generator) info.generator->is_apart = plan_.generator_cpus.has_value();
  Json& rest = info.rest;
  rest.Set("engine", Name(request_.engine.kind));
  rest.Set("replicas", request_.configuration.replicas);
  rest.Set("model", loaded_.style.model);
  rest.Set("tokens_per_word", loaded_.scale.is_known ? Json(loaded_.scale.per_word) : Json());
  if (request_.engine.is_pinion()) TakeServerInfo(result);
}

// Path, type and stages of the first engine, bytes of all.
void TrialServer::TakeServerInfo(TrialResult& result) const {
  constexpr double kPatienceSeconds = 10;
  TrialInfo& info = result.info;
  const auto text = HttpFetch(server_->url(), "/server_info", kPatienceSeconds);
  const auto told = text ? Json::Parse(*text) : Unexpected(text.error());
  if (!told) return;
  info.isa = TextAt(*told, "isa");
  info.dtype = TextAt(*told, "dtype");
  if (const Json* stages = told->Find("stages")) info.rest.Set("stages", *stages);
  result.samples.push_back({"load_s", 0, Optional<double>(*told, "load_s", 0).value_or(0)});
  const Json* each = told->Find("replicas");
  int64_t weight_bytes = 0, kv_bytes = 0;
  for (const Json& engine : each ? each->array() : Json::Array{*told}) {
    weight_bytes += Optional<int64_t>(engine, "weight_bytes", 0).value_or(0);
    const Json* kv = engine.Find("kv_cache");
    kv_bytes += kv ? Optional<int64_t>(*kv, "bytes", 0).value_or(0) : 0;
  }
  info.rest.Set("weight_bytes", weight_bytes);
  info.rest.Set("kv_bytes", kv_bytes);
}

}  // namespace pinion::harness
