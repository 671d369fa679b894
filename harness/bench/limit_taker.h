#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/decoder/cost.h"
#include "harness/bench/bench.h"
#include "harness/bench/load.h"
#include "harness/probe/ceilings.h"

namespace pinion::harness {

// The values of every round, by metric.
using RoundValues = std::map<std::string, std::vector<double>>;

// Measures the limits of a bench's rounds with probes: all of them between the rounds, and memory
// also between the steps, because a virtual machine's bandwidth may double within a second.
class LimitTaker {
 public:
  // Measures at once; does nothing without a probe.
  LimitTaker(CeilingProbe* probe, const BenchPlan& plan);

  // For EngineLoad::after_step.
  void AfterStep(const LoadStep& step);
  // After a round, whose values have been added to `values`.
  void Take(const LoadResult& load, const RoundValues& values);
  // Adds the limits of the rounds so far; `result` must already have its rows.
  void Fill(BenchResult& result) const;

 private:
  // Decode steps between two probes of memory.
  struct Window {
    StepCost cost;
    double read_bytes_per_s = 0;
  };

  void Probe();
  void CloseWindow(double read_bytes_per_s);
  void TakeRates();
  double LeastDecodeSeconds(const Ceilings& peaks) const;

  CeilingProbe* const probe_;
  const BenchPlan& plan_;
  Ceilings last_;
  Window open_;
  double since_probe_s_ = 0;                  // of steps
  double pace_ = 0;                           // bytes/s of the last probe
  std::vector<Window> windows_;               // of the round
  std::vector<double> reads_, flops_, int8_;  // of each round
  RoundValues limits_, fractions_;
  StepCost prefill_, decode_;  // of the last round; all rounds cost the same
};

}  // namespace pinion::harness
