#include "harness/trial/trial_samples.h"

#include <utility>

#include "engine/base/strings.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

// Adds samples of a level.
struct Adder {
  LoadLevel level;
  TrialResult& result;

  void operator()(const std::string& metric, double value) const {
    result.samples.push_back({metric, level, value});
  }
};

// The distribution behind the medians: the quantiles 0 %, 5 %, ..., 100 % of every request's TTFT
// and of every gap, of which a report tells how many of all requests lie beyond.
void AddQuantiles(const ServingSummary& summary, LoadLevel level, std::vector<Distribution>& list) {
  constexpr int kSteps = 20;
  for (const auto& [metric, values] :
       {std::pair("ttft_s", &summary.ttft_s), std::pair("itl_s", &summary.itl_s)}) {
    if (values->empty()) continue;
    Distribution& one = list.emplace_back(Distribution{metric, level, values->size(), {}});
    for (int i = 0; i <= kSteps; ++i)
      one.quantiles.push_back(ExpectedQuantile(*values, static_cast<double>(i) / kSteps));
  }
}

}  // namespace

void AddCounters(const std::vector<CounterReading>& readings, size_t output_tokens,
                 TrialResult& result) {
  result.info.rest.Set("counters", ToJson(readings));
  for (const CounterValue& figure : FiguresOf(readings))
    result.samples.push_back({figure.name, 0, figure.value});
  if (const auto joules = JoulesOf(readings); joules && output_tokens > 0)
    result.samples.push_back({"joules_per_token", 0, *joules / static_cast<double>(output_tokens)});
}

void AddCounted(const ServerCounters& counted, LoadLevel level, TrialResult& result) {
  const Adder add = {level, result};
  add("preemptions", counted.preemptions);
  if (counted.prefix_query_tokens > 0)
    add("prefix_hit_share", counted.prefix_hit_tokens / counted.prefix_query_tokens);
  if (level.any()) return;
  for (const auto& [phase, steps] :
       {std::pair("prefill", counted.prefill), std::pair("decode", counted.decode)}) {
    if (steps.seconds <= 0) continue;
    add(StrCat(phase, "_tokens_per_s"), steps.tokens / steps.seconds);
    add(StrCat(phase, "_flops_per_s"), steps.operations / steps.seconds);
    add(StrCat(phase, "_bytes_per_s"), steps.bytes / steps.seconds);
  }
}

void AddServing(const ServingSummary& summary, LoadLevel level, bool has_slo, TrialResult& result) {
  const Adder add = {level, result};
  if (has_slo) add("goodput", summary.goodput);
  const auto add_median = [&](const char* metric, const std::vector<double>& values) {
    if (!values.empty()) add(metric, Median(values));
  };
  const auto add_quantile = [&](const char* metric, const std::vector<double>& values, double q) {
    if (const auto value = SupportedQuantile(values, q)) add(metric, *value);
  };
  AddQuantiles(summary, level, result.info.quantiles);
  add_median("ttft_s", summary.ttft_s);
  add_median("tpot_s", summary.tpot_s);
  add_median("itl_s", summary.itl_s);
  add_median("e2el_s", summary.e2el_s);
  add_quantile("itl_p90_s", summary.itl_s, 0.90);
  add_quantile("itl_p95_s", summary.itl_s, 0.95);
  add_quantile("itl_p99_s", summary.itl_s, 0.99);
  add_quantile("ttft_p90_s", summary.ttft_s, 0.90);
  add_quantile("ttft_p95_s", summary.ttft_s, 0.95);
  add_quantile("e2el_p95_s", summary.e2el_s, 0.95);
}

}  // namespace pinion::harness
