#pragma once

#include <cstddef>
#include <vector>

#include "engine/calibrate/aligned_floats.h"
#include "engine/host/team.h"
#include "kernels/kernels.h"

namespace pinion {

// lower[i][j] += sign * sum over t of a[i][t] * b[j][t], for j <= i < n.
struct OuterProducts {
  float* lower;  // rows `stride` apart; elements above the diagonal may be written to
  size_t n, stride;
  const float *a, *b;  // [n][depth], 64-byte aligned
  size_t depth;        // a multiple of 32
  float sign;
};

// This worker's share. Every thread of the team calls it; the caller puts barriers around it.
void AddOuterProducts(const kernels::Table& table, const Worker& worker,
                      const OuterProducts& products);

// A symmetric positive matrix H as U D U^T, U unit upper triangular (a Cholesky factorisation that
// begins at the last column): how the best choice of a column depends on those before it.
class GramFactor {
 public:
  // gram: the lower triangle of H, [k][k], which becomes the factor. `damping` times the mean of
  // its diagonal is added to the diagonal, so that H has an inverse.
  GramFactor(AlignedFloats gram, size_t k, double damping);

  // Called by every thread of the team, once.
  void Factor(const kernels::Table& table, const Worker& worker);

  size_t k() const { return k_; }
  // U[0 .. column), of one column: the rows above the diagonal.
  const float* column(size_t column) const { return lower_.data() + column * k_; }

 private:
  float* row(size_t row) { return lower_.data() + row * k_; }
  void FactorRows(const kernels::Table& table, size_t begin, size_t end, size_t first, size_t last);
  void FactorDiagonal(const kernels::Table& table, size_t begin, size_t end);

  AlignedFloats lower_;  // row j: column j of U
  size_t k_;
  float floor_;  // that no pivot falls below
  std::vector<float> diagonal_;
  AlignedFloats panel_, weighted_;  // [k][64]: columns of U, and those times D
};

}  // namespace pinion
