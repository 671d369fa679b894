#include "harness/trial/server_load.h"

#include <algorithm>
#include <set>

#include "engine/base/strings.h"
#include "harness/counters/energy.h"
#include "harness/counters/listeners.h"

namespace pinion::harness {
namespace {

tl::unexpected<Error> Usage(std::string message) {
  return Fail(ErrorCode::kUsage, std::move(message));
}

Status Validate(const LoadPlan& plan) {
  if (!plan.dataset.empty() && !plan.trace.empty())
    return Usage("--dataset and --trace exclude each other; give one of them");
  if (!plan.trace.empty() && plan.arrivals.any())
    return Usage("a trace has its own arrival times; leave out --request-rate and the ramp");
  if (plan.arrivals.rate && plan.arrivals.ramp)
    return Usage("--request-rate and a ramp exclude each other; give one of them");
  if (plan.num_prompts < 1) return Usage("--num-prompts must be at least 1");
  if (!plan.open_loop() && plan.concurrency < 1)
    return Usage("a closed loop needs at least one client; raise --max-concurrency");
  if (plan.shape.turns < 1) return Usage("--turns must be at least 1");
  if (plan.shape.shared_prefix < 0 || plan.shape.prefixes < 1)
    return Usage(
        "a shared prefix must have at least 0 tokens, and there must be at least one prefix");
  return Validate(plan.arrivals);
}

Status Validate(const LoadedServer& server) {
  for (const char letter : server.access.api_key)
    if (static_cast<unsigned char>(letter) < ' ')
      return Usage("the API key contains a line end or another control character");
  if (!(server.timeout_s > 0)) return Usage("--timeout must be above 0 seconds");
  return {};
}

}  // namespace

Status PrepareLoad(LoadedServer& server, LoadPlan& plan, const LoadHooks& hooks) {
  PINION_TRY(Validate(plan));
  PINION_TRY(Validate(server));
  if (server.style.model.empty()) PINION_TRY(FindServedModel(server));
  // Before the server gets any request, so that an unreadable file is reported first.
  PINION_ASSIGN(const DrawnLoad drawn, Draw(plan, server.scale, server.longest));
  plan.num_prompts = static_cast<int>(drawn.conversations.size());
  return MeasureTokenScale(server, plan.deadline_s, hooks);
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

Result<LoadReport> SendLoad(const LoadedServer& server, const LoadPlan& plan, const Slo& slo,
                            const LoadHooks& hooks) {
  LoadReport report{server, plan, slo};
  std::optional<Conditions> before;
  std::optional<EnergyReading> energy;
  LoadHooks timed = hooks;
  timed.begins = [&] {
    before = ConditionsUnderLoad(server.url);
    energy = EnergyReading::Now();
  };
  PINION_ASSIGN(report.result, RunServerLoad(server, plan, timed));
  report.joules = JoulesBetween(*energy, EnergyReading::Now());
  report.suspect = Disturbances(*before, ConditionsUnderLoad(server.url), 1);
  return report;
}

namespace {

// The time after which every request of the plan has met the SLO or missed it, if there is one.
Result<std::optional<double>> PatienceSeconds(const LoadedServer& server, const LoadPlan& plan,
                                              const Slo& slo) {
  PINION_ASSIGN(const DrawnLoad drawn, Draw(plan, server.scale, server.longest));
  int longest = 1;
  for (const Conversation& conversation : drawn.conversations)
    for (const Turn& turn : conversation.turns) longest = std::max(longest, turn.output_len);
  return SecondsToDecide(slo, longest);
}

Status CheckSearchable(const LoadPlan& plan, const Slo& slo) {
  if (!slo.any()) return Usage("a search needs an SLO: give --slo-ttft, --slo-tpot or --slo-e2el");
  if (plan.open_loop())
    return Usage("a search sets the load itself; leave out --trace, the ramp and --request-rate");
  return {};
}

}  // namespace

Result<SloReport> FindLoadBoundary(
    const LoadedServer& server, LoadPlan plan, const Slo& slo, const SloSearchOptions& options,
    const LoadHooks& hooks, const std::function<void(double load, const LevelRun& run)>& told) {
  PINION_TRY(CheckSearchable(plan, slo));
  PINION_ASSIGN(const std::optional<double> patience_s, PatienceSeconds(server, plan, slo));
  SloReport report{server, plan, options, {}, {}};
  std::set<std::string> kinds;  // kinds of disturbances: each is reported once
  const auto run_once = [&](double load) -> Result<LevelRun> {
    ++plan.seed;
    if (options.whole) {
      plan.concurrency = static_cast<int>(load);
    } else {
      plan.arrivals.rate = load;
      plan.concurrency = 0;
      // Twice as long: a waiting request may still be served quickly.
      if (patience_s) plan.deadline_s = plan.num_prompts / load + 2 * *patience_s;
    }
    PINION_ASSIGN(const LoadReport sent, SendLoad(server, plan, slo, hooks));
    if (sent.result.interrupted) return Fail(ErrorCode::kExhausted, "interrupted");
    for (const std::string& reason : sent.suspect)
      if (kinds.insert(reason.substr(0, reason.find_first_of("0123456789"))).second)
        report.suspect.push_back(reason);
    const LevelRun run = RunOf(sent.result, slo);
    told(load, run);
    return run;
  };
  PINION_ASSIGN(report.boundary, FindSloBoundary(options, run_once));
  return report;
}

}  // namespace pinion::harness
