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

// Cuts a step into parts that the stages of a pipeline compute one after the other, each while the
// next stage computes the part before: about 4 for each stage, but of at least kLeastMicroRows rows
// each, since every part reads all weights. A sequence may be cut like a prompt that is computed in
// chunks, unless it must be computed `whole`. The parts point to the batch's block tables.
std::vector<MicroBatch> CutStep(const StepBatch& batch, size_t stages, bool whole);
inline constexpr size_t kLeastMicroRows = 128;

}  // namespace pinion
