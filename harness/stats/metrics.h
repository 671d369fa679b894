#pragma once

#include <string>
#include <vector>

namespace pinion::harness {

// A metric's definition, printed beside its numbers.
struct MetricInfo {
  const char* name;
  const char* unit;  // "tokens/s", "s", "bytes"
  bool more_is_better;
  const char* formula;
  bool describes =
      false;  // of the trial's circumstances: neither compared nor expected of a profile
};

// Offline (concurrency 0): output_tokens_per_s, prefill_tokens_per_s, decode_tokens_per_s, load_s,
// start_s, peak_rss_bytes, and the trial's circumstances: work done, ceilings, disturbances. Per
// concurrency: ttft_s, tpot_s, itl_s, e2el_s, output_tokens_per_s, queue_s, prefill_s, the use
// of the KV cache, goodput if there is an SLO, and percentiles (ttft_p90_s, itl_p99_s, ...) if a
// trial had enough samples for them.
const std::vector<MetricInfo>& Metrics();
const MetricInfo* FindMetric(const std::string& name);

}  // namespace pinion::harness
