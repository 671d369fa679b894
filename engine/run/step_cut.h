#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/clock.h"

namespace pinion {

// Into how many parts to cut a step for the stages of a pipeline. A part passes through all stages;
// while one computes it, the stage before computes the next. If a stage takes t(n) for a part of n
// rows, a step of `rows` rows in p parts takes (p + stages - 1) * t(rows / p): more parts keep more
// stages busy, but each part reads all weights, and waits for the stage before. What this costs
// depends on the machine, the format of the weights and the link, so t is measured at the start,
// for up to 64 rows; steps of 256 rows and more are cut in any case.
class StepCut {
 public:
  struct Sample {
    size_t rows;
    double seconds;  // of a step in one part: of all stages one after the other
  };

  StepCut() = default;  // there is one stage: steps stay whole
  // By rows, ascending; at least two.
  StepCut(size_t stages, std::vector<Sample> samples);

  size_t Parts(size_t rows) const;
  // A line for the log: the samples, and what follows for some steps.
  std::string Describe() const;

 private:
  double Seconds(double rows) const;

  size_t stages_ = 1;
  std::vector<Sample> samples_;
};

// The fastest of two steps of 1, 4, 8, 16, 32 and 64 rows each, as far as steps have so many and
// the start is not delayed much: `run` computes one in one part.
std::vector<StepCut::Sample> TimeParts(size_t most_rows, const std::function<void(size_t)>& run,
                                       const Clock& clock);

}  // namespace pinion
