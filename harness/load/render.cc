// The text output of `pinion load`.

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/strings.h"
#include "harness/load/summary.h"
#include "harness/stats/estimate.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// Three or four significant digits.
std::string Number(double value) {
  const double size = std::abs(value);
  return Printf(size < 0.1 ? "%.4f" : size < 10 ? "%.2f" : size < 1000 ? "%.1f" : "%.0f", value);
}

// Of the JSON's figures.
std::string TimesTable(const Json& json, size_t requests) {
  constexpr const char* kColumns[] = {"median", "mean", "std", "p90", "p95", "p99"};
  constexpr std::pair<const char*, const char*> kRows[] = {
      {"TTFT", "ttft"}, {"TPOT", "tpot"}, {"ITL", "itl"}, {"E2EL", "e2el"}};
  std::string text = Left("  ms", 10);
  for (const char* column : kColumns) text += Right(column, 10);
  for (const auto& [title, name] : kRows) {
    text += "\n" + Left(StrCat("  ", title), 10);
    for (const char* column : kColumns) {
      const Json* ms = json.Find(StrCat(column, "_", name, "_ms"));
      text += Right(ms->is_null() ? "-" : Number(ms->number()), 10);
    }
  }
  text += "\n";
  if (requests < SamplesNeededForQuantile(0.99))
    text += StrCat("  -  needs ", SamplesNeededForQuantile(0.90), " samples for p90, ",
                   SamplesNeededForQuantile(0.95), " for p95, ", SamplesNeededForQuantile(0.99),
                   " for p99\n");
  return text;
}

std::string SloText(const Slo& slo) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, const std::optional<double>& limit_s) {
    if (limit_s) parts.push_back(StrCat(name, " <= ", Number(*limit_s * 1e3), " ms"));
  };
  add("TTFT", slo.ttft_s);
  add("TPOT", slo.tpot_s);
  add("E2EL", slo.e2el_s);
  return Join(parts, ", ");
}

std::string RatesTable(const LoadReport& report, const ServingSummary& summary) {
  double input_tokens = 0;
  bool counted = true;
  for (const RequestRecord& record : report.result.requests) {
    if (!record.complete()) continue;
    input_tokens += record.prompt_tokens.value_or(0);
    counted = counted && record.prompt_tokens && record.output_tokens;
  }
  const double output_tokens = static_cast<double>(summary.output_tokens);
  const double window_s = std::max(summary.window_s, 1e-9);
  std::string text;
  const auto row = [&](const char* name, const std::string& value, const std::string& more = "") {
    text += Left(StrCat("  ", name), 20) + Right(value, 10) + "  " + more;
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  };
  row("requests/s", Number(static_cast<double>(summary.requests) / window_s));
  row("output tokens/s", Number(output_tokens / window_s),
      counted ? "" : "(events; the server does not count its tokens)");
  if (input_tokens > 0) row("all tokens/s", Number((input_tokens + output_tokens) / window_s));
  if (const std::string slo = SloText(report.slo); !slo.empty())
    row("goodput", Number(summary.goodput), StrCat("requests/s with ", slo));
  const double n = std::max<double>(1, static_cast<double>(summary.requests));
  row("tokens per request",
      StrCat(input_tokens > 0 ? Number(input_tokens / n) : std::string("?"), " in,"),
      StrCat(Number(output_tokens / n), " out, on average"));
  return text;
}

std::string Failures(const ServerLoadResult& result) {
  std::map<std::string, int> reasons;
  for (const RequestRecord& record : result.requests)
    if (!record.complete()) ++reasons[record.error];
  std::string text;
  for (const auto& [reason, count] : reasons) text += StrCat("  ", count, " x  ", reason, "\n");
  return text.empty() ? text : "failed:\n" + text + "\n";
}

std::string GeneratorLine(const ServerLoadResult& result) {
  const GeneratorLoad& own = result.generator;
  std::string text = StrCat("generator: ", Percent(own.cpu_share), " of a core, on CPUs ",
                            FormatCpuList(own.cpus), "; ");
  if (result.open_loop && !own.late_s.empty())
    text += StrCat("sent ", Number(Median(own.late_s) * 1e3), " ms behind schedule (at most ",
                   Number(*std::max_element(own.late_s.begin(), own.late_s.end()) * 1e3), "), ");
  const double lag_s =
      own.lag_s.empty() ? 0 : *std::max_element(own.lag_s.begin(), own.lag_s.end());
  return text + StrCat("its clock was at most ", Number(lag_s * 1e3), " ms late\n");
}

std::string EnergyLine(const LoadReport& report, const ServingSummary& summary) {
  if (!report.joules) return StrCat("energy: ", report.joules.error().message, "\n");
  const double tokens = static_cast<double>(std::max<size_t>(1, summary.output_tokens));
  return StrCat("energy: ", Number(*report.joules), " J, ", Number(*report.joules / tokens),
                " J per output token, for everything that ran on the packages\n");
}

}  // namespace

std::string Render(const LoadReport& report) {
  const ServerLoadResult& result = report.result;
  const ServingSummary summary = Summarise(TracesOf(result), report.slo);
  const LoadedServer& server = report.server;
  std::string text =
      StrCat(server.url.text, ": ", server.style.model, ", ", Name(server.style.endpoint), "\n",
             DescribeRequests(report.plan, server.scale), "\n", DescribeArrivals(report.plan),
             ", seed ", report.plan.seed, "\n\n");
  text += StrCat(summary.requests, " of ", result.requests.size(), " requests complete in ",
                 Number(summary.window_s), " s, at most ", result.most_at_once, " at a time");
  if (result.never_sent > 0) text += StrCat("; ", result.never_sent, " were due and never sent");
  text += result.interrupted ? "; interrupted\n\n" : "\n\n";
  text += Failures(result);
  if (summary.requests > 0)
    text += RatesTable(report, summary) + "\n" +
            TimesTable(ToJson(report, false), summary.requests) + "\n";
  text += GeneratorLine(result) + EnergyLine(report, summary);
  std::vector<std::string> suspect = report.suspect;
  for (std::string& fault : GeneratorFaults(result)) suspect.push_back(std::move(fault));
  for (const std::string& reason : suspect) text += StrCat("disturbed: ", reason, "\n");
  text += "\nformulas:\n";
  for (const auto& [name, formula] : LoadFormulas())
    text += Left(StrCat("  ", name), 28) + formula + "\n";
  return text;
}

}  // namespace pinion::harness
