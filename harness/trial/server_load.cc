#include "harness/trial/server_load.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/strings.h"
#include "engine/base/words.h"
#include "harness/counters/energy.h"
#include "harness/counters/listeners.h"

namespace pinion::harness {
namespace {

tl::unexpected<Error> Usage(std::string message) {
  return Fail(ErrorCode::kUsage, std::move(message));
}

ArrivalPlan ArrivalsOf(const ServerLoad& load) {
  return {load.rate.value_or(1), load.burstiness, load.ramp};
}

std::string ArrivalText(const ServerLoad& load) {
  std::string text;
  if (!load.open_loop())
    return "closed loop of " + Counted(static_cast<size_t>(load.max_concurrency), "client");
  if (!load.trace.empty()) {
    text = "open loop at the trace's times";
  } else {
    text = load.ramp ? StrCat("open loop, ", load.ramp->exponential ? "exponential" : "linear",
                              " ramp from ", load.ramp->from, " to ", load.ramp->to, " requests/s")
                     : StrCat("open loop, ", *load.rate, " requests/s");
    text += load.burstiness == 1          ? ", Poisson"
            : std::isinf(load.burstiness) ? ", even gaps"
                                          : StrCat(", gamma gaps of shape ", load.burstiness);
  }
  if (load.max_concurrency > 0) text += StrCat(", at most ", load.max_concurrency, " at a time");
  return text;
}

ServerLoadPlan PlanOf(const ServerUrl& url, const ServerLoad& load, const LoadHooks& hooks) {
  ServerLoadPlan plan;
  plan.url = url;
  plan.style = {load.endpoint, load.model, load.ignore_eos, load.temperature, load.extra_body};
  plan.access = load.access;
  plan.concurrency = load.max_concurrency;
  plan.timeout_s = load.timeout_s;
  plan.cpus = load.cpus;
  if (load.duration_s) plan.stop_sending_s = *load.duration_s;
  plan.hooks = hooks;
  return plan;
}

Status ReadConversations(PreparedLoad& prepared) {
  const ServerLoad& load = prepared.load;
  if (!load.trace.empty()) {
    PINION_ASSIGN(Trace trace, ReadTrace(load.trace));
    const size_t count = std::min(trace.arrival_s.size(), load.num_prompts);
    trace.arrival_s.resize(count);
    prepared.conversations = TraceConversations(trace, load.seed, prepared.scale);
    prepared.trace_s = std::move(trace.arrival_s);
    prepared.workload = StrCat("trace ", load.trace, ": ", count, " requests");
  } else if (!load.dataset.empty()) {
    PINION_ASSIGN(prepared.conversations,
                  ReadShareGpt(load.dataset, load.num_prompts, load.shape.turns, load.seed,
                               load.output, prepared.scale));
    prepared.workload =
        StrCat("dataset ", load.dataset, ": ", prepared.conversations.size(), " conversations");
  } else {
    prepared.conversations = MakeConversations(load.shape, load.num_prompts, load.seed,
                                               prepared.scale, prepared.longest);
    prepared.workload = Describe(load.shape);
  }
  return {};
}

}  // namespace

Status Validate(const ServerLoad& load) {
  if (!load.dataset.empty() && !load.trace.empty())
    return Usage("--dataset and --trace exclude each other; give one of them");
  if (!load.trace.empty() && (load.rate || load.ramp))
    return Usage("a trace has its own arrival times; leave out --request-rate and the ramp");
  if (load.rate && load.ramp)
    return Usage("--request-rate and a ramp exclude each other; give one of them");
  if (load.num_prompts < 1) return Usage("--num-prompts must be at least 1");
  if (!load.open_loop() && load.max_concurrency < 1)
    return Usage("a closed loop needs at least one client; raise --max-concurrency");
  if (load.shape.turns < 1) return Usage("--turns must be at least 1");
  if (load.shape.shared_prefix < 0 || load.shape.prefixes < 1)
    return Usage(
        "a shared prefix must have at least 0 tokens, and there must be at least one prefix");
  for (const char letter : load.access.api_key)
    if (static_cast<unsigned char>(letter) < ' ')
      return Usage("the API key contains a line end or another control character");
  if (!(load.timeout_s > 0)) return Usage("--timeout must be above 0 seconds");
  return Validate(ArrivalsOf(load));
}

Result<PreparedLoad> PrepareLoad(const ServerUrl& url, const ServerLoad& load,
                                 const LoadHooks& hooks) {
  PINION_TRY(Validate(load));
  PreparedLoad prepared{url, load, {}, 0, {}, {}, "", {}};
  if (load.model.empty()) {
    PINION_ASSIGN(ServedModel served, FindServedModel(url, load.access));
    prepared.load.model = std::move(served.name);
    prepared.longest = served.longest;
  }
  // First, so that an unreadable file is reported before the server gets any request.
  PINION_TRY(ReadConversations(prepared));
  PINION_ASSIGN(prepared.scale, MeasureTokenScale(PlanOf(url, prepared.load, hooks)));
  PINION_TRY(ReadConversations(prepared));
  return prepared;
}

Conditions ConditionsUnderLoad(const ServerUrl& url) {
  if (!url.is_local) return Conditions::Of({getpid()});
  const size_t host = url.text.find("://") + 3;
  const std::string authority = url.text.substr(host, url.text.find('/', host) - host);
  const auto port = ParseInt(authority.substr(authority.rfind(':') + 1), "port");
  const std::vector<pid_t> server =
      port ? ListeningProcesses(static_cast<int>(*port)) : std::vector<pid_t>();
  Conditions conditions = Conditions::Of({getpid()}, server);
  conditions.knows_own = !server.empty();
  return conditions;
}

Result<LoadReport> SendLoad(const PreparedLoad& prepared, const LoadHooks& hooks) {
  const ServerLoad& load = prepared.load;
  ServerLoadPlan plan = PlanOf(prepared.url, load, hooks);
  plan.conversations = prepared.conversations;
  plan.longest = prepared.longest;
  if (prepared.deadline_s) plan.deadline_s = *prepared.deadline_s;
  if (!prepared.trace_s.empty()) {
    plan.arrival_s = prepared.trace_s;
  } else if (load.open_loop()) {
    plan.arrival_s = ArrivalSeconds(ArrivalsOf(load), plan.conversations.size(), load.seed);
  }
  LoadReport report;
  report.url = prepared.url.text;
  report.model = load.model;
  report.endpoint = Name(load.endpoint);
  report.workload = prepared.workload;
  if (!prepared.scale.is_known && load.dataset.empty())
    report.workload += " (counting one token per word: the server reports no token counts)";
  report.arrivals = ArrivalText(load);
  report.request_rate = load.rate.value_or(0);
  report.burstiness = load.burstiness;
  report.max_concurrency = load.max_concurrency;
  report.seed = load.seed;
  report.slo = load.slo;
  const Conditions before = ConditionsUnderLoad(prepared.url);
  const EnergyReading energy = EnergyReading::Now();
  PINION_ASSIGN(report.result, RunServerLoad(plan));
  report.joules = JoulesBetween(energy, EnergyReading::Now());
  report.suspect = Disturbances(before, ConditionsUnderLoad(prepared.url), 1);
  return report;
}

namespace {

std::optional<double> PatienceSeconds(const PreparedLoad& prepared) {
  int longest = 1;
  for (const Conversation& conversation : prepared.conversations)
    for (const Turn& turn : conversation.turns) longest = std::max(longest, turn.output_len);
  return SecondsToDecide(prepared.load.slo, longest);
}

Status CheckSearchable(const ServerLoad& load) {
  if (!load.slo.ttft_s && !load.slo.tpot_s && !load.slo.e2el_s)
    return Usage("a search needs an SLO: give --slo-ttft, --slo-tpot or --slo-e2el");
  if (!load.trace.empty() || load.ramp || load.rate)
    return Usage("a search sets the load itself; leave out --trace, the ramp and --request-rate");
  return {};
}

}  // namespace

Result<SloReport> FindLoadBoundary(
    PreparedLoad prepared, const SloSearchOptions& options, const LoadHooks& hooks,
    const std::function<void(double load, const LevelRun& run)>& told) {
  PINION_TRY(CheckSearchable(prepared.load));
  SloReport report{prepared.url.text, prepared.load.model, prepared.workload, options, {}, {}};
  const std::optional<double> patience_s = PatienceSeconds(prepared);
  std::set<std::string> kinds;  // kinds of disturbances: each is reported once
  const auto run_once = [&](double load) -> Result<LevelRun> {
    ++prepared.load.seed;
    PINION_TRY(ReadConversations(prepared));
    if (options.whole) {
      prepared.load.max_concurrency = static_cast<int>(load);
    } else {
      prepared.load.rate = load;
      prepared.load.max_concurrency = 0;
      // Twice as long: a waiting request may still be served quickly.
      if (patience_s)
        prepared.deadline_s =
            static_cast<double>(prepared.conversations.size()) / load + 2 * *patience_s;
    }
    PINION_ASSIGN(const LoadReport sent, SendLoad(prepared, hooks));
    if (sent.result.interrupted) return Fail(ErrorCode::kExhausted, "interrupted");
    for (const std::string& reason : sent.suspect)
      if (kinds.insert(reason.substr(0, reason.find_first_of("0123456789"))).second)
        report.suspect.push_back(reason);
    const LevelRun run = RunOf(sent.result, prepared.load.slo);
    told(load, run);
    return run;
  };
  PINION_ASSIGN(report.boundary, FindSloBoundary(options, run_once));
  return report;
}

}  // namespace pinion::harness
