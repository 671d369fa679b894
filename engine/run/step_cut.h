#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/run/step_samples.h"

namespace pinion {

// Into how many parts to cut a step for the stages of a pipeline, if it computes prompts; while one
// decodes, others keep the stages busy. A part passes through all stages; while one computes it,
// the stage before computes the next. If a stage takes t(n) for a part of n rows, a step of `rows`
// rows in p parts takes (p + stages - 1) * t(rows / p): more parts keep more stages busy, but each
// part reads all weights, and waits for the stage before. The cost depends on the machine, the
// format of the weights and the link, so t is measured at the start, for up to 64 rows; steps of
// 256 rows and more are cut in any case.
class StepCut {
 public:
  StepCut() = default;  // there is one stage: steps stay whole
  // Of steps in one part, which all stages compute one after the other; by rows, ascending; at
  // least two.
  StepCut(size_t stages, std::vector<StepSample> samples);

  size_t Parts(size_t rows) const;
  // For each sample the time that a step of its rows adds to the others if so many are in flight:
  // one stage's, or all of it if a step is always alone. Empty: there is one stage.
  std::vector<StepSample> AddedSamples(size_t steps_in_flight) const;
  // A line for the log: the samples, and the resulting cut of some steps.
  std::string Describe() const;

 private:
  double Seconds(double rows) const;
  // Of a step in so many parts, times the number of stages.
  double StageSeconds(size_t rows, size_t parts) const;

  size_t stages_ = 1;
  std::vector<StepSample> samples_;
};

// The steps to time for it.
SampleChoice PartSamples();

}  // namespace pinion
