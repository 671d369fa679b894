#pragma once

#include <cstddef>
#include <vector>

#include "engine/calibrate/aligned_floats.h"
#include "engine/calibrate/scale_search.h"

namespace pinion {

// How far a matrix's products with its sample are from the exact ones once its channels are scaled
// and it is rounded.
class ScaleTrial {
 public:
  // matrix: has a sample; outlives the object, as do the others.
  ScaleTrial(const kernels::Table& table, Ranks& ranks, const ScaleChoice& choice,
             const ScaledMatrix& matrix);

  // The sum of squares over all tokens seen, as far as the sample tells; does not depend on the
  // threads.
  double Error(const std::vector<float>& factors);

 private:
  void ScaleSample(const std::vector<float>& factors);
  void RoundRows(const std::vector<float>& factors, size_t first, size_t count, float* dst) const;
  void MultiplyBlock(const float* x, const AlignedFloats& weights, size_t count, float* products,
                     AlignedFloats& packed) const;
  template <typename Fill, typename Use>
  void ForBlocks(const float* x, const Fill& fill, const Use& use);

  const kernels::Table& table_;
  Ranks& ranks_;
  const ScaleChoice& choice_;
  const ScaledMatrix& matrix_;
  const size_t k_, k_padded_, rows_, blocks_;
  AlignedFloats exact_;  // [blocks][rows][64]
  AlignedFloats x_;      // [rows][k_padded], scaled and rounded
};

}  // namespace pinion
