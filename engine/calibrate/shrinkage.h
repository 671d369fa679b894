#pragma once

#include "engine/calibrate/statistics_meter.h"

namespace pinion {

// The Gram matrix of a sample errs: chance correlations can mislead GPTQ into larger errors than
// rounding to the nearest makes. These functions move it towards a matrix that errs less, by the
// share of their difference that chance explains (Schäfer and Strimmer 2005,
// doi:10.2202/1544-6115.1175, equation 8, of moments about zero): all the way after few tokens,
// hardly after many. It becomes the mean over tokens.

// Towards uncorrelated channels.
void ShrinkToDiagonal(InputStatistics& inputs);

// Towards the matrix of all tokens, of which `inputs` are some, or none; `all` is a mean over
// tokens.
void ShrinkToAll(const InputStatistics& all, InputStatistics& inputs);

}  // namespace pinion
