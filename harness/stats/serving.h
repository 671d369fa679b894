#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pinion::harness {

// The times at which one request was sent (open loop: was due) and its tokens arrived;
// CLOCK_MONOTONIC.
struct RequestTrace {
  int64_t sent_ns = 0;
  std::vector<int64_t> token_ns;  // ascending; at least one
  size_t counted_tokens = 0;      // if several tokens may arrive at once; 0: one per arrival

  size_t tokens() const { return counted_tokens ? counted_tokens : token_ns.size(); }
};

// Limits that a request must meet to count as good; unset: no limit.
struct Slo {
  std::optional<double> ttft_s, tpot_s, e2el_s;

  bool any() const { return ttft_s || tpot_s || e2el_s; }
};

double TtftSeconds(const RequestTrace& trace);  // first token - send
double E2elSeconds(const RequestTrace& trace);  // last token - send
// (last token - first token) / (output tokens - 1); nullopt for a single token.
std::optional<double> TpotSeconds(const RequestTrace& trace);
bool Meets(const RequestTrace& trace, const Slo& slo);

// The time after its sending at which every request of at most `output_len` tokens has met the
// limits or missed them; nullopt if the limits bound no such time.
std::optional<double> SecondsToDecide(const Slo& slo, int output_len);

// The summary of one closed or open loop. The caller leaves out requests without a token.
struct ServingSummary {
  size_t requests = 0, output_tokens = 0;
  double window_s = 0;             // first send to last completion
  double output_tokens_per_s = 0;  // output tokens completed / window
  double requests_per_s = 0;
  double goodput = 0;                          // requests that meet every SLO / window
  std::vector<double> ttft_s, tpot_s, e2el_s;  // one per request
  std::vector<double> itl_s;  // gaps between consecutive tokens, all requests pooled
};

ServingSummary Summarise(std::span<const RequestTrace> traces, const Slo& slo = {});

}  // namespace pinion::harness
