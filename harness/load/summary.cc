#include "harness/load/summary.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/strings.h"
#include "harness/stats/estimate.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

constexpr double kLateShare = 0.01, kLateSeconds = 1e-3, kBusyShare = 0.7;

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// The population's standard deviation (divided by n), NumPy's default.
double Deviation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

void SetTimes(Json& object, const std::string& name, const std::vector<double>& seconds) {
  const bool any = !seconds.empty();
  object.Set(StrCat("mean_", name, "_ms"), any ? Json(Mean(seconds) * 1e3) : Json());
  object.Set(StrCat("median_", name, "_ms"), any ? Json(Median(seconds) * 1e3) : Json());
  object.Set(StrCat("std_", name, "_ms"), any ? Json(Deviation(seconds) * 1e3) : Json());
  for (const int percent : {90, 95, 99}) {
    const auto value = SupportedQuantile(seconds, percent / 100.0);
    object.Set(StrCat("p", percent, "_", name, "_ms"), value ? Json(*value * 1e3) : Json());
  }
}

// The delay of the generator itself from which on it is reported.
double LateSeconds(const ServingSummary& summary) {
  return std::max(kLateSeconds, kLateShare * Median(summary.ttft_s));
}

// The most tokens that arrived within one second of the load.
double PeakTokensPerSecond(const ServerLoadResult& result) {
  std::map<int64_t, double> buckets;
  for (const RequestRecord& record : result.requests) {
    if (!record.complete()) continue;
    const double each =
        static_cast<double>(record.tokens()) / static_cast<double>(record.token_ns.size());
    for (const int64_t at_ns : record.token_ns)
      buckets[(at_ns - result.start_ns) / 1'000'000'000] += each;
  }
  double most = 0;
  for (const auto& [second, tokens] : buckets) most = std::max(most, tokens);
  return most;
}

Json RequestJson(const RequestRecord& record, const ServerLoadResult& result) {
  const auto offset = [&](int64_t at_ns) {
    return Json(static_cast<double>(at_ns - result.start_ns) * 1e-9);
  };
  Json one = Json::MakeObject();
  one.Set("conversation", static_cast<int64_t>(record.conversation));
  one.Set("turn", static_cast<int64_t>(record.turn));
  one.Set("scheduled_s", offset(record.scheduled_ns));
  one.Set("sent_s", offset(record.sent_ns));
  Json tokens = Json::MakeArray();
  for (const int64_t at_ns : record.token_ns) tokens.Append(offset(at_ns));
  one.Set("token_s", std::move(tokens));
  one.Set("prompt_tokens", record.prompt_tokens ? Json(*record.prompt_tokens) : Json());
  one.Set("output_tokens", static_cast<int64_t>(record.tokens()));
  one.Set("status", record.status);
  one.Set("error", record.error);
  return one;
}

Json OwnJson(const LoadReport& report, bool detailed) {
  const ServerLoadResult& result = report.result;
  Json own = Json::MakeObject();
  own.Set("url", report.server.url.text);
  own.Set("workload", DescribeRequests(report.plan, report.server.scale));
  own.Set("arrivals", DescribeArrivals(report.plan));
  own.Set("seed", report.plan.seed);
  own.Set("start_monotonic_s", static_cast<double>(result.start_ns) * 1e-9);
  own.Set("never_sent", static_cast<int64_t>(result.never_sent));
  own.Set("interrupted", result.interrupted);
  Json generator = Json::MakeObject();
  generator.Set("cpus", Json(result.generator.cpus));
  generator.Set("cpu_share", result.generator.cpu_share);
  generator.Set("late_share", LateShare(result));
  SetTimes(generator, "late", result.generator.late_s);
  SetTimes(generator, "lag", result.generator.lag_s);
  const auto max_ms = [](const std::vector<double>& seconds) {
    return seconds.empty() ? Json() : Json(*std::max_element(seconds.begin(), seconds.end()) * 1e3);
  };
  generator.Set("max_late_ms", max_ms(result.generator.late_s));
  generator.Set("max_lag_ms", max_ms(result.generator.lag_s));
  own.Set("generator", std::move(generator));
  Json energy = Json::MakeObject();
  size_t tokens = 0;
  for (const RequestTrace& trace : TracesOf(result)) tokens += trace.tokens();
  const bool known = report.joules && tokens > 0;
  energy.Set("joules", report.joules ? Json(*report.joules) : Json());
  energy.Set("joules_per_output_token",
             known ? Json(*report.joules / static_cast<double>(tokens)) : Json());
  energy.Set("reason", report.joules ? "" : report.joules.error().message);
  own.Set("energy", std::move(energy));
  std::vector<std::string> suspect = report.suspect;
  for (std::string& fault : GeneratorFaults(result)) suspect.push_back(std::move(fault));
  own.Set("suspect", Json(suspect));
  Json formulas = Json::MakeObject();
  for (const auto& [name, formula] : LoadFormulas()) formulas.Set(name, formula);
  own.Set("formulas", std::move(formulas));
  if (!detailed) return own;
  Json requests = Json::MakeArray();
  for (const RequestRecord& record : result.requests) requests.Append(RequestJson(record, result));
  own.Set("requests", std::move(requests));
  return own;
}

}  // namespace

std::vector<RequestTrace> TracesOf(const ServerLoadResult& result) {
  std::vector<RequestTrace> traces;
  for (const RequestRecord& record : result.requests)
    if (record.complete())
      traces.push_back({result.open_loop ? record.scheduled_ns : record.sent_ns, record.token_ns,
                        record.tokens()});
  return traces;
}

double LateShare(const ServerLoadResult& result) {
  const GeneratorLoad& own = result.generator;
  const std::vector<double>& behind_s = result.open_loop ? own.late_s : own.lag_s;
  if (behind_s.empty()) return 0;
  const double limit_s = LateSeconds(Summarise(TracesOf(result)));
  const auto late = std::count_if(behind_s.begin(), behind_s.end(),
                                  [&](double seconds) { return seconds > limit_s; });
  return static_cast<double>(late) / static_cast<double>(behind_s.size());
}

std::vector<std::string> GeneratorFaults(const ServerLoadResult& result) {
  std::vector<std::string> faults;
  const GeneratorLoad& own = result.generator;
  if (own.cpu_share > kBusyShare)
    faults.push_back(StrCat("the load generator was busy ", Printf("%.0f %%", own.cpu_share * 100),
                            " of the time"));
  const double limit_s = LateSeconds(Summarise(TracesOf(result)));
  // In a closed loop, or under a limit on concurrency, late requests are not the generator's fault;
  // its own clock is.
  const double late_s = Quantile(own.lag_s, 0.95);
  if (late_s > limit_s)
    faults.push_back(
        StrCat("late client: ", Printf("%.1f ms", late_s * 1e3), " behind its own clock at p95"));
  return faults;
}

const std::vector<std::pair<std::string, std::string>>& LoadFormulas() {
  static const std::vector<std::pair<std::string, std::string>> formulas = {
      {"ttft", "first token's arrival - send time (open loop: time at which it was due)"},
      {"tpot", "(last token - first token) / (output tokens - 1), per request"},
      {"itl", "gaps between consecutive arrivals of tokens, all requests pooled"},
      {"e2el", "last token's arrival - send time (open loop: time at which it was due)"},
      {"duration", "first send (open loop: due) to last token, of complete requests"},
      {"request_throughput", "complete requests / duration"},
      {"output_throughput", "output tokens of complete requests / duration"},
      {"total_token_throughput", "(prompt + output tokens of complete requests) / duration"},
      {"joules_per_output_token",
       "energy of all processor packages over the load / output tokens, if RAPL can be read"},
      {"request_goodput", "complete requests that meet every SLO / duration"},
  };
  return formulas;
}

Json ToJson(const LoadReport& report, bool detailed) {
  const ServerLoadResult& result = report.result;
  const ServingSummary summary = Summarise(TracesOf(result), report.slo);
  int64_t input_tokens = 0;
  for (const RequestRecord& record : result.requests)
    if (record.complete()) input_tokens += record.prompt_tokens.value_or(0);
  const auto per_second = [&](double count) {
    return summary.window_s > 0 ? Json(count / summary.window_s) : Json();
  };
  const auto output_tokens = static_cast<int64_t>(summary.output_tokens);
  const RequestStyle& style = report.server.style;
  const LoadPlan& plan = report.plan;
  Json json = Json::MakeObject();
  json.Set("date", UtcNow("%Y%m%d-%H%M%S"));
  json.Set("backend", style.endpoint == Endpoint::kChat ? "openai-chat" : "openai");
  json.Set("model_id", style.model);
  json.Set("num_prompts", static_cast<int64_t>(result.requests.size()));
  json.Set("request_rate", plan.arrivals.rate ? Json(*plan.arrivals.rate) : Json("inf"));
  json.Set("burstiness", plan.arrivals.burstiness);
  json.Set("max_concurrency", plan.concurrency > 0 ? Json(plan.concurrency) : Json());
  json.Set("duration", summary.window_s);
  json.Set("completed", static_cast<int64_t>(summary.requests));
  json.Set("failed", static_cast<int64_t>(result.requests.size() - summary.requests));
  json.Set("total_input_tokens", input_tokens);
  json.Set("total_output_tokens", output_tokens);
  json.Set("request_throughput", per_second(static_cast<double>(summary.requests)));
  json.Set("request_goodput", report.slo.any() ? Json(summary.goodput) : Json());
  json.Set("output_throughput", per_second(static_cast<double>(output_tokens)));
  json.Set("total_token_throughput", per_second(static_cast<double>(input_tokens + output_tokens)));
  json.Set("max_output_tokens_per_s", PeakTokensPerSecond(result));
  json.Set("max_concurrent_requests", static_cast<int64_t>(result.most_at_once));
  SetTimes(json, "ttft", summary.ttft_s);
  SetTimes(json, "tpot", summary.tpot_s);
  SetTimes(json, "itl", summary.itl_s);
  SetTimes(json, "e2el", summary.e2el_s);
  json.Set("pinion", OwnJson(report, detailed));
  return json;
}

}  // namespace pinion::harness
