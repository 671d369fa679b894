#pragma once

#include <limits>

namespace pinion {

// The factors of the parts of a Mamba-2 projection, and of the mixer's output (Falcon-H1).
struct MambaMultipliers {
  float z = 1, x = 1, b = 1, c = 1, dt = 1, out = 1;
};

// Mamba-2 (arXiv:2405.21060). A linear gives z, x, B, C and dt; x, B and C pass a causal
// convolution of each channel and silu. Each head has a state [state_dim][head_dim], which the
// kernels' state_space updates token by token with decay exp(-A dt), dt = softplus(dt + dt_bias)
// kept within dt_min and dt_max. Its output, times silu(z), is normalised over equal runs of heads
// and projected back. Neighbouring heads share a group's B and C.
struct MambaSpec {
  int heads = 0;  // 0: no layer is of this kind
  int head_dim = 0, state_dim = 0;
  int groups = 1;      // of heads, each with a B and a C
  int norm_runs = 0;   // of heads, each normalised by itself; 0: the output is not normalised
  int conv_width = 0;  // tokens that the convolution sees, the current one included
  bool conv_bias = false;
  float dt_min = 0, dt_max = std::numeric_limits<float>::infinity();
  MambaMultipliers multipliers;

  int heads_per_group() const { return heads / groups; }
  int inner() const { return heads * head_dim; }
};

}  // namespace pinion
