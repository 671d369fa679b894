#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/calibrate/statistics.h"
#include "engine/checkpoint/rounding.h"
#include "engine/host/team.h"
#include "kernels/kernels.h"

namespace pinion {

// How factors are computed from each channel's statistics:
//   AWQ (Lin et al., arXiv:2306.00978)           mean |x| ^ strength
//   SmoothQuant (Xiao et al., arXiv:2211.10438)  max |x| ^ strength / max |w| ^ (1 - strength)
enum class ScaleRule { kAwq, kSmoothQuant };

struct ScaleChoice {
  ScaleRule rule;
  RoundingScheme scheme;
  bool powers_of_two = false;  // so that multiplying floats by them is exact
};

// A matrix whose input channels may be scaled: (x / s) (W s)^T = x W^T.
struct ScaledMatrix {
  const InputStatistics& inputs;  // of the tokens that it multiplies
  const float* weights;           // [n][inputs.k]
  size_t n;
};

// Calls `see` with every matrix that reads the channels, always the same ones. They may be read one
// after the other: none is used once `see` has returned.
using EachReader = std::function<void(const std::function<void(const ScaledMatrix&)>& see)>;

// Tries ten strengths and returns the factors s [k] for which the rounded products of all readers
// together are nearest to the exact ones on their samples. Each row of a sample counts for as many
// tokens as it stands for. All factors are 1 if none reduces the squared error by a twentieth.
// Under SmoothQuant the activations are rounded too, each token by itself. all: statistics over the
// tokens of all readers. Call it between steps: it runs on the teams of `ranks`.
std::vector<float> SearchScales(const kernels::Table& table, Ranks& ranks,
                                const ScaleChoice& choice, const InputStatistics& all,
                                const EachReader& each_reader);

}  // namespace pinion
