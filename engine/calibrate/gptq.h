#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/calibrate/gram.h"
#include "engine/checkpoint/rounding.h"
#include "engine/host/team.h"
#include "kernels/kernels.h"

namespace pinion {

// One matrix and where its integers go: codes [n][k], scales and offsets [n][groups].
struct RoundingJob {
  const float* weights;  // [n][k]
  size_t n, k;
  RoundingScheme scheme;
  int8_t* codes;
  float *scales, *offsets;
};

// GPTQ (Frantar et al., arXiv:2210.17323): columns are rounded one after the other, each adjusted
// first to make up for the errors of those before it, so that the squared error of the products
// with the calibration's activations becomes small. Computed as LDLQ, which gives the same result
// (Chee et al., arXiv:2307.13304, theorem 6): with H = U D U^T the best value of column j is
//   w[j] + sum over i < j of (w[i] - rounded[i]) * U[i][j]
// Groups have the scales that rounding to the nearest gives them (GPTQ's static groups).
class Gptq {
 public:
  // factor: of the Gram matrix of the inputs; it and the job outlive the object.
  Gptq(const GramFactor& factor, const RoundingJob& job);

  // Called by every thread of the team, once.
  void Round(const kernels::Table& table, const Worker& worker);

 private:
  void RoundBlock(size_t row, size_t begin, size_t width);
  void PackLater(const Worker& worker, size_t begin);
  void MoveLater(const kernels::Table& table, size_t first, size_t last, size_t begin,
                 AlignedFloats& products);

  const GramFactor& factor_;
  const RoundingJob& job_;
  AlignedFloats moves_;   // [n][k]: the sum that the errors so far add to each weight
  AlignedFloats errors_;  // [n][64], of one block of columns
  AlignedFloats later_;   // packed: how later columns depend on the block's
};

}  // namespace pinion
