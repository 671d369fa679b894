#pragma once

#include "engine/decoder/decoder.h"
#include "engine/run/stages.h"
#include "engine/run/start.h"

namespace pinion {

// One step that prefills a sequence and decodes another: touches the workspace's pages, wakes the
// teams and pages in the code, so that the first request pays for none of it. Few rows, or
// arithmetic would take longer than loading did; one step, because each reads all weights. False:
// every logit is NaN.
bool WarmUp(StartedModel& model, const DecoderOptions& options);

// Times steps of few rows if the model has stages of layers, and decides by that how to cut later
// ones into parts: sets model.cut.
void TimeCut(StartedModel& model, const DecoderOptions& options, Stages& stages);

// Times the first steps, unless TimeCut has done so, so that the scheduler can keep later ones
// within their bound: sets model.step_times.
void TimeSteps(StartedModel& model, const DecoderOptions& options, Stages& stages);

}  // namespace pinion
