#pragma once

#include <cstddef>
#include <vector>

#include "engine/calibrate/statistics.h"
#include "engine/host/team.h"
#include "engine/quant/rounding.h"
#include "kernels/kernels.h"

namespace pinion {

// How factors are made of what is known of each channel: those of
//   AWQ (Lin et al., arXiv:2306.00978)           mean |x| ^ strength
//   SmoothQuant (Xiao et al., arXiv:2211.10438)  max |x| ^ strength / max |w| ^ (1 - strength)
enum class ScaleRule { kAwq, kSmoothQuant };

// A matrix whose input channels may be scaled: (x / s) (W s)^T = x W^T.
struct ScaledMatrix {
  const InputStatistics& inputs;
  const float* weights;  // [n][inputs.k]
  size_t n;
  RoundingScheme scheme;
};

// The factors s [k] for which the rounded products come nearest to the exact ones on the sample, of
// ten strengths; all 1 where none brings the squared error down by a twentieth. Under SmoothQuant
// the activations are rounded too, each token by itself. Call it between steps: it runs on the
// teams of `ranks`.
std::vector<float> SearchScales(const kernels::Table& table, Ranks& ranks,
                                const ScaledMatrix& matrix, ScaleRule rule);

}  // namespace pinion
