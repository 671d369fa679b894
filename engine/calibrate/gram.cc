#include "engine/calibrate/gram.h"

#include <algorithm>
#include <utility>

namespace pinion {

using kernels::Dtype;
using kernels::kBlockN;

void AddOuterProducts(const kernels::Table& table, const Worker& worker,
                      const OuterProducts& products) {
  const size_t n = products.n, depth = products.depth;
  AlignedFloats packed(kBlockN * depth), sums(n * kBlockN);
  worker.Share((n + kBlockN - 1) / kBlockN, 1, [&](size_t block, size_t) {
    const size_t first = block * kBlockN, columns = std::min(kBlockN, n - first), rows = n - first;
    kernels::PackBlock(packed.bytes(), Dtype::kF32,
                       reinterpret_cast<const std::byte*>(products.b + first * depth), Dtype::kF32,
                       depth, columns, depth);
    kernels::Gemm(
        table, Dtype::kF32,
        {products.a + first * depth, packed.bytes(), sums.data(), rows, depth, 1, kBlockN});
    for (size_t i = 0; i < rows; ++i)
      table.add_scaled(products.lower + (first + i) * products.stride + first,
                       sums.data() + i * kBlockN, products.sign, columns);
  });
}

GramFactor::GramFactor(AlignedFloats gram, size_t k, double damping)
    : lower_(std::move(gram)), k_(k), diagonal_(k), panel_(k * kBlockN), weighted_(k * kBlockN) {
  double sum = 0;
  for (size_t i = 0; i < k; ++i) sum += row(i)[i];
  floor_ = static_cast<float>(std::max(damping * sum / static_cast<double>(k), 1e-30));
  for (size_t i = 0; i < k; ++i) row(i)[i] += floor_;
}

// Factors columns [first, last), all before `begin`, of rows [begin, end).
void GramFactor::FactorRows(const kernels::Table& table, size_t begin, size_t end, size_t first,
                            size_t last) {
  if (first == last) return;
  for (size_t j = end; j-- > begin;) {
    for (size_t m = j + 1; m < end; ++m)
      table.add_scaled(row(j) + first, row(m) + first, -diagonal_[m] * row(m)[j], last - first);
    table.scale(row(j) + first, 1 / diagonal_[j], last - first);
  }
}

// Factors the triangle of rows [begin, end): row j needs the pivots of the rows after it.
void GramFactor::FactorDiagonal(const kernels::Table& table, size_t begin, size_t end) {
  for (size_t j = end; j-- > begin;) {
    float* current = row(j);
    for (size_t m = j + 1; m < end; ++m)
      table.add_scaled(current + begin, row(m) + begin, -diagonal_[m] * row(m)[j], j + 1 - begin);
    // The damped matrix has no smaller pivot: less than that is a rounding error.
    diagonal_[j] = std::max(current[j], floor_);
    if (j > begin) table.scale(current + begin, 1 / diagonal_[j], j - begin);
  }
}

void GramFactor::Factor(const kernels::Table& table, const Worker& worker) {
  // Blocked, from the last 64 rows up, so that most of the work is matrix products: the small
  // triangle by one thread, the rows' other columns and the update of everything before them by
  // all. Each of these steps reads what the one before it wrote, hence the barriers.
  for (size_t end = k_; end > 0;) {
    const size_t begin = (end - 1) / kBlockN * kBlockN;
    if (worker.thread == 0) FactorDiagonal(table, begin, end);
    worker.TeamBarrier();
    const auto [first, last] = worker.Slice(begin);
    FactorRows(table, begin, end, first, last);
    for (size_t i = first; i < last; ++i)
      for (size_t m = 0; m < kBlockN; ++m) {
        const float value = begin + m < end ? row(begin + m)[i] : 0;
        panel_.data()[i * kBlockN + m] = value;
        weighted_.data()[i * kBlockN + m] = begin + m < end ? value * diagonal_[begin + m] : 0;
      }
    worker.TeamBarrier();
    AddOuterProducts(table, worker,
                     {lower_.data(), begin, k_, panel_.data(), weighted_.data(), kBlockN, -1});
    worker.TeamBarrier();
    end = begin;
  }
}

}  // namespace pinion
