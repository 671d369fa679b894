#include "harness/trial/server_load.h"

#include <cmath>

#include "engine/base/strings.h"
#include "harness/trial/conditions.h"

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
    return StrCat("closed loop of ", load.max_concurrency,
                  load.max_concurrency == 1 ? " client" : " clients");
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

ServerLoadPlan PlanOf(const ServerLoad& load, const LoadHooks& hooks) {
  ServerLoadPlan plan;
  plan.style = {load.endpoint, load.model, load.ignore_eos, load.temperature, load.extra_body};
  plan.api_key = load.api_key;
  plan.concurrency = load.max_concurrency;
  plan.timeout_s = load.timeout_s;
  plan.cpus = load.cpus;
  if (load.duration_s) plan.stop_sending_s = *load.duration_s;
  plan.interrupted = hooks.interrupted;
  plan.progress = hooks.progress;
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
    prepared.conversations =
        MakeConversations(load.shape, load.num_prompts, load.seed, prepared.scale);
    prepared.workload = Describe(load.shape);
  }
  return {};
}

}  // namespace

Status Validate(const ServerLoad& load) {
  if (!load.dataset.empty() && !load.trace.empty())
    return Usage("--dataset and --trace both say what to send; give one of them");
  if (!load.trace.empty() && (load.rate || load.ramp))
    return Usage("a trace has its own times; leave out --request-rate and the ramp");
  if (load.rate && load.ramp)
    return Usage("--request-rate and a ramp both say when to send; give one of them");
  if (load.num_prompts < 1) return Usage("--num-prompts must be at least 1");
  if (!load.open_loop() && load.max_concurrency < 1)
    return Usage("a closed loop needs at least one client; raise --max-concurrency");
  if (load.shape.turns < 1) return Usage("--turns must be at least 1");
  if (load.shape.shared_prefix < 0 || load.shape.prefixes < 1)
    return Usage("a shared prefix has 0 tokens or more, and there is at least one of them");
  if (!(load.timeout_s > 0)) return Usage("--timeout must be above 0 seconds");
  return Validate(ArrivalsOf(load));
}

Result<PreparedLoad> PrepareLoad(const ServerUrl& url, const ServerLoad& load,
                                 const LoadHooks& hooks) {
  PINION_TRY(Validate(load));
  PreparedLoad prepared{url, load, {}, {}, {}, ""};
  if (load.model.empty()) {
    PINION_ASSIGN(prepared.load.model, FindServedModel(url, load.api_key));
  }
  // A file that cannot be read is better said before the server is asked anything.
  PINION_TRY(ReadConversations(prepared));
  PINION_ASSIGN(prepared.scale, MeasureTokenScale(url, PlanOf(prepared.load, hooks)));
  PINION_TRY(ReadConversations(prepared));
  return prepared;
}

Result<LoadReport> SendLoad(const PreparedLoad& prepared, const LoadHooks& hooks) {
  const ServerLoad& load = prepared.load;
  ServerLoadPlan plan = PlanOf(load, hooks);
  plan.conversations = prepared.conversations;
  if (!prepared.trace_s.empty()) {
    plan.arrival_s = prepared.trace_s;
  } else if (load.open_loop()) {
    plan.arrival_s = ArrivalSeconds(ArrivalsOf(load), plan.conversations.size(), load.seed);
  }
  LoadReport report;
  report.url = prepared.url.Text();
  report.model = load.model;
  report.endpoint = Name(load.endpoint);
  report.workload = prepared.workload;
  if (!prepared.scale.is_known && load.dataset.empty())
    report.workload += " (a word taken for a token: the server does not count)";
  report.arrivals = ArrivalText(load);
  report.request_rate = load.rate.value_or(0);
  report.burstiness = load.burstiness;
  report.max_concurrency = load.max_concurrency;
  report.seed = load.seed;
  report.slo = load.slo;
  const Conditions before = Conditions::Now();
  PINION_ASSIGN(report.result, RunServerLoad(prepared.url, plan));
  report.suspect = Disturbances(before, Conditions::Now(), 1);
  return report;
}

}  // namespace pinion::harness
