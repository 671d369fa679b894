#pragma once

#include "engine/calibrate/statistics_meter.h"

namespace pinion {

// The Gram matrix of a sample errs: correlations that are chance mislead GPTQ into errors larger
// than those of rounding to the nearest. These move it towards a matrix that errs less, by the
// share of their difference that chance explains (Schäfer and Strimmer 2005,
// doi:10.2202/1544-6115.1175, equation 8, of moments about zero): all the way where few tokens
// were seen, hardly where many were. It becomes the mean over tokens.

// Towards channels that have nothing to do with one another.
void ShrinkToDiagonal(InputStatistics& inputs);

// Towards that of all tokens, of which `inputs` are some, or none; `all` is a mean over tokens.
void ShrinkToAll(const InputStatistics& all, InputStatistics& inputs);

}  // namespace pinion
