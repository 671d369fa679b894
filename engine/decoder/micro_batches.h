#pragma once

#include <cstddef>
#include <vector>

#include "engine/decoder/step.h"
#include "engine/spec/spec.h"

namespace pinion {

// Cuts a step into parts of about as many consecutive rows that the stages of a pipeline compute
// one after the other, each while the next stage computes the part before. `parts`: at least 1;
// fewer come of it if there are fewer rows, or places to cut, and none without rows. A sequence may
// be cut like a prompt that is computed in chunks, behind any multiple of `granule` of its rows in
// this step. The parts point to the batch's block tables. Every slice of the batch has rows.
std::vector<StepBatch> CutStep(const StepBatch& batch, size_t parts, size_t granule);

// The multiple of tokens at which a sequence of a model may be cut: kCutRows, where attention's
// tiles end; the length of a chunk if its states advance by chunks, so that these stay the same;
// the largest number if its tokens see each other in both directions, so that it is not cut.
size_t CutGranule(const DecoderSpec& spec);

}  // namespace pinion
