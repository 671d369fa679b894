#pragma once

#include <cstddef>
#include <vector>

#include "engine/decoder/step.h"

namespace pinion {

// Consecutive rows of a step as a step of their own.
struct MicroBatch {
  StepBatch batch;
  size_t first_row = 0, first_logit = 0;  // in the whole step; the latter in its logit_rows
};

// Cuts a step into parts of about as many rows that the stages of a pipeline compute one after the
// other, each while the next stage computes the part before. `parts`: at least 1; fewer come of it
// if there are fewer rows, or sequences that must be computed `whole`. Otherwise a sequence may be
// cut like a prompt that is computed in chunks. The parts point to the batch's block tables.
std::vector<MicroBatch> CutStep(const StepBatch& batch, size_t parts, bool whole);

}  // namespace pinion
