#include "harness/trial/servers.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/run/replicas.h"
#include "harness/load/arrivals.h"
#include "harness/load/http_client.h"
#include "harness/profile/front.h"
#include "harness/trial/runner.h"

namespace pinion::harness {
namespace {

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

// The last error in a server's log, without the program's name; "" if there is none.
std::string LastError(const std::string& log) {
  constexpr std::string_view kName = "pinion: ";
  const std::vector<std::string> lines = Split(LogTail(log), '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (line->starts_with(kName)) return line->substr(kName.size());
  return "";
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

Result<std::vector<EngineCommand>> ServerPlan::Commands(const EngineChoice& engine,
                                                        const std::vector<int>& ports) const {
  return CommandsFor(engine, options, whole, machine, ports, load);
}

Result<ServerPlan> PlanServers(const TrialRequest& request) {
  ServerPlan plan;
  PINION_ASSIGN(plan.machine, ThisMachine());
  PINION_ASSIGN(const Budget budget, ComputeBudget(plan.machine));
  plan.options = request.options;
  plan.load = LoadOf(request.workload);
  PINION_ASSIGN(plan.whole, PlanReplicas(plan.options, request.replicas, plan.machine, budget));
  plan.generator_cpus = SpareCpus(budget, plan.whole);
  const bool ours = request.engine.is_pinion() && request.replicas > 1;
  if (ours && !plan.options.kv_cache_bytes) {
    PINION_ASSIGN(plan.options.kv_cache_bytes,
                  KvShareBytes(plan.options, request.replicas, budget));
  }
  if (request.replicas > 1)
    LogInfo(StrCat(request.replicas, " replicas, each with ",
                   plan.options.kv_cache_bytes
                       ? FormatBytes(*plan.options.kv_cache_bytes) + " of KV space per rank"
                       : std::string("the KV space that its engine takes")));
  return plan;
}

Result<std::string> ShownCommand(const ServerPlan& plan, const TrialRequest& request) {
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

Result<std::unique_ptr<TrialServers>> TrialServers::Start(const TrialRequest& request,
                                                          const ServerPlan& plan,
                                                          std::function<bool()> interrupted) {
  std::unique_ptr<TrialServers> made(new TrialServers(request, plan, std::move(interrupted)));
  const Status started = made->StartAll();
  if (started) return made;
  const std::string ended = made->WhyEnded("");
  return Fail(started.error().code, ended.empty() ? started.error().message : ended);
}

Status TrialServers::StartAll() {
  PINION_ASSIGN(const std::vector<int> ports, FreePorts(static_cast<size_t>(request_.replicas)));
  PINION_ASSIGN(const auto commands, plan_.Commands(request_.engine, ports));
  ignored_ = commands.front().ignored;
  PINION_ASSIGN(generator_, GeneratorProcess::Start(plan_.generator_cpus));
  PINION_TRY(servers_.Start(request_.engine, commands, ports, request_.log, interrupted_));
  urls_ = servers_.urls();
  return Ask();
}

// Asks the first server for its model's name and how it counts made-up text: all are alike.
Status TrialServers::Ask() {
  constexpr double kPatienceSeconds = 600;
  PINION_ASSIGN(style_.endpoint, ParseEndpoint(request_.engine.endpoint));
  PINION_ASSIGN(const ServedModel served, FindServedModel(urls_.front(), {}));
  style_.model = served.name;
  longest_ = served.longest;
  LoadPhase phase;
  phase.stop_sending_s = phase.deadline_s = phase.last_deadline_s = kPatienceSeconds;
  PINION_ASSIGN(scale_, MeasureTokenScale(urls_.front(), PlanOf(phase)));
  return {};
}

// The same texts for every candidate of a round, with lengths as its server counts them.
ServerLoadPlan TrialServers::PlanOf(const LoadPhase& phase) const {
  const uint64_t seed = request_.seed ^ (phase.stream << 32);
  ServerLoadPlan plan;
  plan.style = style_;
  plan.conversations = MakeConversations(
      ShapeOf(request_.workload), static_cast<size_t>(phase.requests), seed, scale_, longest_);
  plan.longest = longest_;
  plan.concurrency = phase.rate ? 0 : phase.clients;
  plan.stop_sending_s = phase.stop_sending_s;
  plan.deadline_s = phase.deadline_s;
  plan.last_deadline_s = phase.last_deadline_s;
  if (phase.rate)
    plan.arrival_s = ArrivalSeconds({*phase.rate, 1, {}}, static_cast<size_t>(phase.requests),
                                    request_.seed ^ phase.stream);
  for (Conversation& one : plan.conversations) {
    if (phase.most_output == 0) break;
    one.turns.resize(1);
    one.turns[0].output_len = std::min(phase.most_output, one.turns[0].output_len);
  }
  return plan;
}

Result<PhaseResult> TrialServers::Send(const LoadPhase& phase) {
  const auto before = CountersOf(urls_);
  PhaseResult result;
  int64_t looked_ns = 0;
  const auto why_stop = [&] {
    // Once a second: a look costs the front end a millisecond.
    if (before && SecondsSince(looked_ns) >= 1) {
      looked_ns = NowNs();
      if (const auto now = CountersOf(urls_))
        result.kv_used_share = std::max(result.kv_used_share.value_or(0), now->kv_used_share);
    }
    return WhyStop();
  };
  auto load = generator_->Send({urls_, PlanOf(phase)}, why_stop);
  if (const std::string why = WhyStop(); !why.empty()) return Fail(ErrorCode::kFailed, why);
  if (!load) return Unexpected(std::move(load).error());
  result.load = std::move(*load);
  const auto after = CountersOf(urls_);
  if (before && after) result.counted = *after - *before;
  return result;
}

// If one of the servers has ended, the rest of the load would be meaningless.
std::string TrialServers::WhyStop() {
  if (interrupted_()) return "interrupted";
  return WhyEnded(" under load");
}

// "the server ended with exit code 1 under load: cannot reserve 1 GiB ..."; empty while all run.
std::string TrialServers::WhyEnded(const char* when) {
  const std::string why = servers_.WhyEnded();
  if (why.empty()) return "";
  // A server alone writes to the trial's own log.
  std::string error = request_.replicas == 1 ? LastError(request_.log + ".log") : "";
  for (const std::string& log : servers_.LogsOfEnded())
    if (error.empty()) error = LastError(log);
  return StrCat(why, when, error.empty() ? "" : ": ", error);
}

TrialServers::~TrialServers() {
  for (const std::string& log : servers_.LogsOfEnded())
    std::fprintf(stderr, "the end of %s:\n%s\n", log.c_str(), LogTail(log).c_str());
}

void TrialServers::Describe(TrialResult& result) const {
  const auto add = [&](const char* metric, double value) {
    result.samples.push_back({metric, 0, value});
  };
  add("start_s", servers_.start_s());
  add("peak_rss_bytes", static_cast<double>(servers_.peak_rss_bytes()));
  Json& info = result.info;
  info.Set("engine", Name(request_.engine.kind));
  info.Set("replicas", request_.replicas);
  info.Set("model", style_.model);
  info.Set("tokens_per_word", scale_.is_known ? Json(scale_.per_word) : Json());
  info.Set("plan", ToJson(plan_.whole));
  info.Set("threads", plan_.whole.total_threads());
  info.Set("ranks", static_cast<int64_t>(plan_.whole.ranks.size()));
  info.Set("ignored_settings", Json(ignored_));
  if (request_.engine.is_pinion()) TakeServerInfo(result);
}

// Path, type and stages of the first server, bytes of all.
void TrialServers::TakeServerInfo(TrialResult& result) const {
  constexpr double kPatienceSeconds = 10;
  Json& info = result.info;
  int64_t weight_bytes = 0, kv_bytes = 0;
  for (const ServerUrl& url : urls_) {
    const auto text = HttpFetch(url, "/server_info", kPatienceSeconds);
    const auto told = text ? Json::Parse(*text) : Unexpected(text.error());
    if (!told) continue;
    for (const char* key : {"isa", "dtype", "stages"})
      if (const Json* value = told->Find(key); value && !info.Find(key)) info.Set(key, *value);
    if (&url == &urls_.front())
      result.samples.push_back({"load_s", 0, Optional<double>(*told, "load_s", 0).value_or(0)});
    weight_bytes += Optional<int64_t>(*told, "weight_bytes", 0).value_or(0);
    const Json* kv = told->Find("kv_cache");
    kv_bytes += kv ? Optional<int64_t>(*kv, "bytes", 0).value_or(0) : 0;
  }
  info.Set("weight_bytes", weight_bytes);
  info.Set("kv_bytes", kv_bytes);
}

}  // namespace pinion::harness
