#include "harness/stats/serving.h"

#include <algorithm>

#include "engine/base/check.h"

namespace pinion::harness {
namespace {

double Seconds(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

}  // namespace

double TtftSeconds(const RequestTrace& trace) {
  return Seconds(trace.sent_ns, trace.token_ns.front());
}

double E2elSeconds(const RequestTrace& trace) {
  return Seconds(trace.sent_ns, trace.token_ns.back());
}

std::optional<double> TpotSeconds(const RequestTrace& trace) {
  if (trace.token_ns.size() < 2 || trace.tokens() < 2) return std::nullopt;
  return Seconds(trace.token_ns.front(), trace.token_ns.back()) /
         static_cast<double>(trace.tokens() - 1);
}

bool Meets(const RequestTrace& trace, const Slo& slo) {
  const std::optional<double> tpot_s = TpotSeconds(trace);
  return (!slo.ttft_s || TtftSeconds(trace) <= *slo.ttft_s) &&
         (!slo.tpot_s || !tpot_s || *tpot_s <= *slo.tpot_s) &&
         (!slo.e2el_s || E2elSeconds(trace) <= *slo.e2el_s);
}

std::optional<double> SecondsToDecide(const Slo& slo, int output_len) {
  if (slo.e2el_s) return slo.e2el_s;
  if (!slo.ttft_s) return std::nullopt;
  return *slo.ttft_s + slo.tpot_s.value_or(0) * output_len;
}

ServingSummary Summarise(std::span<const RequestTrace> traces, const Slo& slo) {
  ServingSummary summary;
  if (traces.empty()) return summary;
  int64_t first_ns = traces[0].sent_ns, last_ns = traces[0].sent_ns;
  size_t good = 0;
  for (const RequestTrace& trace : traces) {
    CHECK(!trace.token_ns.empty());
    first_ns = std::min(first_ns, trace.sent_ns);
    last_ns = std::max(last_ns, trace.token_ns.back());
    summary.output_tokens += trace.tokens();
    summary.ttft_s.push_back(TtftSeconds(trace));
    summary.e2el_s.push_back(E2elSeconds(trace));
    if (const auto tpot_s = TpotSeconds(trace)) summary.tpot_s.push_back(*tpot_s);
    for (size_t i = 1; i < trace.token_ns.size(); ++i)
      summary.itl_s.push_back(Seconds(trace.token_ns[i - 1], trace.token_ns[i]));
    good += Meets(trace, slo) ? 1 : 0;
  }
  summary.requests = traces.size();
  summary.window_s = Seconds(first_ns, last_ns);
  if (summary.window_s <= 0) return summary;
  summary.output_tokens_per_s = static_cast<double>(summary.output_tokens) / summary.window_s;
  summary.requests_per_s = static_cast<double>(summary.requests) / summary.window_s;
  summary.goodput = static_cast<double>(good) / summary.window_s;
  return summary;
}

}  // namespace pinion::harness
