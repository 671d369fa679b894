#include "harness/stats/metrics.h"

namespace pinion::harness {

const std::vector<MetricInfo>& Metrics() {
  static const std::vector<MetricInfo> metrics = {
      {"output_tokens_per_s", "tokens/s", true,
       "output tokens completed / (last completion - first send); of a closed loop, tokens that "
       "arrived in its steady window / its time"},
      {"prefill_tokens_per_s", "tokens/s", true,
       "prompt tokens / time of the steps that compute prompts"},
      {"decode_tokens_per_s", "tokens/s", true,
       "tokens of pure decode steps / time of those steps, summed over the batch"},
      {"goodput", "requests/s", true, "requests that meet every SLO / window"},
      {"slo_load", "load", true,
       "requests/s, or clients, at which the share of requests that meet the SLO falls to "
       "`attain`: "
       "between the loads of a search in the trial, by their monotone fit"},
      {"ttft_s", "s", false, "median over requests of: first token - send time"},
      {"ttft_p90_s", "s", false, "90th percentile over requests of: first token - send time"},
      {"ttft_p95_s", "s", false, "95th percentile over requests of: first token - send time"},
      {"tpot_s", "s", false,
       "median over requests of: (last token - first token) / (output tokens - 1)"},
      {"itl_s", "s", false, "median gap between consecutive tokens, all requests pooled"},
      {"itl_p90_s", "s", false, "90th percentile of the gaps between consecutive tokens"},
      {"itl_p95_s", "s", false, "95th percentile of the gaps between consecutive tokens"},
      {"itl_p99_s", "s", false, "99th percentile of the gaps between consecutive tokens"},
      {"e2el_s", "s", false, "median over requests of: last token - send time"},
      {"e2el_p95_s", "s", false, "95th percentile over requests of: last token - send time"},
      {"queue_s", "s", false, "median over requests of: scheduled - arrived, the engine's stamps"},
      {"prefill_s", "s", false,
       "median over requests of: first token - scheduled, the engine's stamps"},
      {"joules_per_token", "J", false,
       "energy counters of all packages, difference / output tokens of the measured load"},
      {"cost_per_mtoken", "price", false,
       "(price per hour / output tokens of the batch per hour + price per kWh x joules per token / "
       "3.6e6) x 1e6"},
      {"memory_bytes_per_s", "bytes/s", true,
       "bytes read and written by the memory controllers / time of the load", true},
      {"memory_local_bytes_per_s", "bytes/s", true,
       "bytes from the reading core's own NUMA node / time of the load", true},
      {"memory_remote_bytes_per_s", "bytes/s", false,
       "bytes from other NUMA nodes / time of the load", true},
      {"frequency_hz", "Hz", true, "cycles of the engine's threads / their time on a CPU", true},
      {"package_watts", "W", false, "energy of all processor packages / time of the load", true},
      {"wall_watts", "W", false, "mean power of the whole machine during the load", true},
      {"load_s", "s", false, "time to read and pack the weights"},
      {"start_s", "s", false, "time from start to ready"},
      {"peak_rss_bytes", "bytes", false, "peak resident memory of the server's processes, summed"},
      {"prefill_flops_per_s", "FLOP/s", true,
       "operations of the steps that compute prompts (projections, attention) / their time", true},
      {"prefill_bytes_per_s", "bytes/s", true,
       "bytes that those steps must read (weights once a step, KV) / their time", true},
      {"decode_flops_per_s", "FLOP/s", true, "operations of pure decode steps / their time", true},
      {"decode_bytes_per_s", "bytes/s", true, "bytes that those steps must read / their time",
       true},
      {"ceiling_flops_per_s", "FLOP/s", true,
       "multiply-adds from registers by the trial's threads, measured after its load", true},
      {"ceiling_int8_ops_per_s", "FLOP/s", true,
       "the same in int8, if the model is multiplied in integers", true},
      {"ceiling_bytes_per_s", "bytes/s", true,
       "memory read by the trial's threads, measured after its load", true},
      {"kv_used_share", "share", false,
       "largest share of KV blocks in use, looked at once a second", true},
      {"prefix_hit_share", "share", true,
       "prompt tokens found in the prefix cache / prompt tokens of admitted requests", true},
      {"preemptions", "sequences", false,
       "sequences that gave up their KV blocks to others and were computed again", true},
      {"generator_cpu_share", "cores", false,
       "CPU time of the load generator / time, of its busiest phase; 1 is a whole core", true},
      {"steal_share", "share", false,
       "CPU time that the hypervisor gave to others / CPU time, all CPUs, during the load", true},
      {"cpu_pressure_share", "share", false,
       "time during which a runnable thread waited for a CPU / time of the load", true},
  };
  return metrics;
}

const MetricInfo* FindMetric(const std::string& name) {
  for (const MetricInfo& metric : Metrics())
    if (name == metric.name) return &metric;
  return nullptr;
}

}  // namespace pinion::harness
