#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/base/clock.h"

namespace pinion {

// A step that the start has timed. One table of them tells into how many parts to cut later steps
// (StepCut) and how long these will take (MeasuredStepTimes).
struct StepSample {
  size_t rows;
  double seconds;
  size_t wanted = 1;  // rows whose logits are wanted
};

// Which steps to time.
struct SampleChoice {
  std::vector<size_t> rows;  // of each step, ascending
  int runs = 1;              // of each step, of which the fastest counts
  // Whether to leave out steps of more than 16 rows if 16 already take so much longer than one that
  // time must be proportional to rows from there on.
  bool until_rows_count = false;
};

// Times steps of at most `most_rows` rows, as far as the start is not delayed much; each sample has
// one wanted row. run: computes one of so many rows.
std::vector<StepSample> TimeSamples(const SampleChoice& choice, size_t most_rows,
                                    const std::function<void(size_t)>& run, const Clock& clock);

}  // namespace pinion
