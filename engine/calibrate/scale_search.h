#pragma once

#include <cstddef>
#include <functional>
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

struct ScaleChoice {
  ScaleRule rule;
  RoundingScheme scheme;
  bool powers_of_two = false;  // factors that floats are multiplied with exactly
};

// A matrix whose input channels may be scaled: (x / s) (W s)^T = x W^T.
struct ScaledMatrix {
  const InputStatistics& inputs;  // of the tokens that it multiplies
  const float* weights;           // [n][inputs.k]
  size_t n;
};

// Shows `see` every matrix that reads the channels, always the same ones. They may be read one
// after the other: none is used once `see` has returned.
using EachReader = std::function<void(const std::function<void(const ScaledMatrix&)>& see)>;

// The factors s [k] for which the rounded products of all readers together come nearest to the
// exact ones on their samples, each row of which stands for as many tokens as were seen, of ten
// strengths; all 1 where none brings the squared error down by a twentieth. Under SmoothQuant the
// activations are rounded too, each token by itself. all: of the tokens of all readers. Call it
// between steps: it runs on the teams of `ranks`.
std::vector<float> SearchScales(const kernels::Table& table, Ranks& ranks,
                                const ScaleChoice& choice, const InputStatistics& all,
                                const EachReader& each_reader);

}  // namespace pinion
