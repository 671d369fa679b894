#pragma once

#include <string>
#include <vector>

namespace pinion::harness {

// What a metric is: printed beside its numbers.
struct MetricInfo {
  const char* name;
  const char* unit;  // "tokens/s", "s", "bytes"
  bool more_is_better;
  const char* formula;
  bool describes = false;  // what happened, not how good it was: compared and expected by nobody
};

// Offline (concurrency 0): output_tokens_per_s, prefill_tokens_per_s, decode_tokens_per_s, load_s,
// start_s, peak_rss_bytes, and what describes the trial: work done, ceilings, disturbances. Per
// concurrency: ttft_s, tpot_s, itl_s, e2el_s, output_tokens_per_s, queue_s, prefill_s, what
// happened to the KV cache, and ttft_p90_s, itl_p90_s, itl_p99_s where a trial had samples enough
// for them. `pinion bench` alone: goodput.
const std::vector<MetricInfo>& Metrics();
const MetricInfo* FindMetric(const std::string& name);

}  // namespace pinion::harness
