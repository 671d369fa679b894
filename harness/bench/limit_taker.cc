#include "harness/bench/limit_taker.h"

#include <algorithm>
#include <utility>

#include "engine/base/trace.h"
#include "harness/bench/limits.h"

namespace pinion::harness {
namespace {

// A probe of 25 ms takes a tenth of that.
constexpr double kWindowSeconds = 0.25;

}  // namespace

LimitTaker::LimitTaker(CeilingProbe* probe, const BenchPlan& plan) : probe_(probe), plan_(plan) {
  if (probe_) Probe();
}

void LimitTaker::AfterStep(const LoadStep& step) {
  if (!step.prefills) open_.cost += step.cost;
  since_probe_s_ += step.seconds;
  if (since_probe_s_ < kWindowSeconds) return;
  const TraceSpan span("probe");
  CloseWindow(probe_->ReadRate());
}

// The limits of a round are measured before and after it.
void LimitTaker::Take(const LoadResult& load, const RoundValues& values) {
  if (!probe_) return;
  const Ceilings before = last_;
  Probe();
  TakeRates();
  prefill_ = load.prefill.least;
  decode_ = load.decode.least;
  const Ceilings peaks = Larger(before, last_);
  const LeastTimes least{RoofSeconds(prefill_, peaks), LeastDecodeSeconds(peaks)};
  for (const auto& [metric, limit] : LimitsOf(load, plan_, least)) {
    const auto value = values.find(metric);
    if (value == values.end()) continue;
    limits_[metric].push_back(limit);
    fractions_[metric].push_back(FractionOfLimit(metric, value->second.back(), limit));
  }
  windows_.clear();
}

void LimitTaker::Fill(BenchResult& result) const {
  if (!probe_ || reads_.empty()) return;
  BenchLimits limits{EstimateMedian(reads_), EstimateMedian(flops_), EstimateMedian(int8_),
                     prefill_, decode_};
  const Ceilings medians{limits.read_bytes_per_s.median, limits.flops_per_s.median,
                         limits.int8_ops_per_s.median};
  const auto by_bytes = [&](const StepCost& cost) {
    return ReadSeconds(cost, medians) > ComputeSeconds(cost, medians);
  };
  limits.prefill_bound_by_bytes = by_bytes(prefill_);
  limits.decode_bound_by_bytes = by_bytes(decode_);
  result.limits = limits;
  for (BenchRow& row : result.rows) {
    const auto found = limits_.find(row.metric);
    if (found == limits_.end()) continue;
    row.limit = EstimateMedian(found->second);
    row.fraction_of_limit = EstimateMedian(fractions_.at(row.metric));
  }
}

void LimitTaker::Probe() {
  const TraceSpan span("probe");
  last_ = probe_->Measure();
  CloseWindow(last_.read_bytes_per_s);
}

// The faster of the two probes around a window counts: a disturbance can only lower a probe.
void LimitTaker::CloseWindow(double read_bytes_per_s) {
  if (open_.cost.bytes() > 0) {
    open_.read_bytes_per_s = std::max(pace_, read_bytes_per_s);
    windows_.push_back(std::exchange(open_, {}));
  }
  pace_ = read_bytes_per_s;
  since_probe_s_ = 0;
}

// The memory's rate for the round: the bytes that its decode steps had to read over the least time
// for them.
void LimitTaker::TakeRates() {
  double bytes = 0, seconds = 0;
  for (const Window& window : windows_) {
    bytes += static_cast<double>(window.cost.bytes());
    seconds += static_cast<double>(window.cost.bytes()) / window.read_bytes_per_s;
  }
  reads_.push_back(seconds > 0 ? bytes / seconds : last_.read_bytes_per_s);
  flops_.push_back(last_.flops_per_s);
  int8_.push_back(last_.int8_ops_per_s);
}

double LimitTaker::LeastDecodeSeconds(const Ceilings& peaks) const {
  double seconds = 0;
  for (const Window& window : windows_) {
    Ceilings then = peaks;
    then.read_bytes_per_s = window.read_bytes_per_s;
    seconds += RoofSeconds(window.cost, then);
  }
  return seconds;
}

}  // namespace pinion::harness
