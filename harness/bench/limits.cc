#include "harness/bench/limits.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "harness/stats/metrics.h"

namespace pinion::harness {

Result<std::unique_ptr<CeilingProbe>> StartCeilings(const Engine& engine) {
  const EngineInfo& info = engine.info();
  const auto isa = kernels::ParseIsa(info.isa);
  if (!isa)
    return Fail(ErrorCode::kUnsupported, StrCat("there is no probe for the ISA '", info.isa, "'"));
  const bool integers = engine.formats().Count(IntegerProduct::kInt8) > 0;
  return CeilingProbe::Start(info.plan, *isa, engine.formats().dtype, integers);
}

double ReadSeconds(const StepCost& cost, const Ceilings& ceilings) {
  return static_cast<double>(cost.bytes()) / ceilings.read_bytes_per_s;
}

double ComputeSeconds(const StepCost& cost, const Ceilings& ceilings) {
  const double floats = static_cast<double>(cost.flops) / ceilings.flops_per_s;
  if (cost.int8_ops == 0) return floats;
  return floats + static_cast<double>(cost.int8_ops) / ceilings.int8_ops_per_s;
}

double RoofSeconds(const StepCost& cost, const Ceilings& ceilings) {
  return std::max(ReadSeconds(cost, ceilings), ComputeSeconds(cost, ceilings));
}

std::vector<MetricLimit> LimitsOf(const LoadResult& load, const BenchPlan& plan,
                                  const LeastTimes& least) {
  const auto [prefill_s, decode_s] = least;
  std::vector<MetricLimit> limits;
  const auto add_rate = [&](const char* metric, uint64_t tokens, double seconds) {
    if (seconds > 0) limits.push_back({metric, static_cast<double>(tokens) / seconds});
  };
  add_rate("prefill_tokens_per_s", load.prefill.tokens, prefill_s);
  add_rate("decode_tokens_per_s", load.decode.tokens, decode_s);
  add_rate("output_tokens_per_s", load.OutputTokens(), prefill_s + decode_s);
  if (plan.mode == BenchMode::kLatency && plan.batch == 1) {
    limits.push_back({"ttft_s", prefill_s});
    limits.push_back({"tpot_s", decode_s / (plan.output_len - 1)});
    limits.push_back({"e2el_s", prefill_s + decode_s});
  }
  return limits;
}

double FractionOfLimit(const std::string& metric, double value, double limit) {
  const MetricInfo* info = FindMetric(metric);
  return info && !info->more_is_better ? limit / value : value / limit;
}

Ceilings Larger(const Ceilings& a, const Ceilings& b) {
  return {std::max(a.read_bytes_per_s, b.read_bytes_per_s), std::max(a.flops_per_s, b.flops_per_s),
          std::max(a.int8_ops_per_s, b.int8_ops_per_s)};
}

}  // namespace pinion::harness
