#include "engine/calibrate/shrinkage.h"

#include <algorithm>

namespace pinion {
namespace {

// With fewer tokens, the estimate of chance's share is itself chance.
constexpr size_t kFewestRows = 32;

// target(row, column), below the diagonal and on it.
template <typename Target>
void Shrink(InputStatistics& inputs, const Target& target) {
  const size_t k = inputs.k;
  const auto rows = static_cast<double>(inputs.rows);
  const auto gram = [&](size_t i, size_t j) -> float& { return inputs.gram.data()[i * k + j]; };
  double squares = 0, distance = 0;  // over all pairs of different channels
  for (size_t i = 0; i < k; ++i)
    for (size_t j = 0; j < i; ++j) {
      const double mean = gram(i, j) / rows, apart = mean - target(i, j);
      squares += 2 * mean * mean;
      distance += 2 * apart * apart;
    }
  const double variance = (inputs.pair_squares / rows - squares) / (rows - 1);
  const bool known = inputs.rows >= kFewestRows && variance < distance;
  const double share = known ? std::max(variance / distance, 0.0) : 1;
  for (size_t i = 0; i < k; ++i)
    for (size_t j = 0; j <= i; ++j)
      gram(i, j) = static_cast<float>((1 - share) * gram(i, j) / rows + share * target(i, j));
}

}  // namespace

void ShrinkToDiagonal(InputStatistics& inputs) {
  if (inputs.rows == 0) return;
  const size_t k = inputs.k;
  Shrink(inputs, [&](size_t i, size_t j) {
    return i == j ? inputs.gram.data()[i * k + i] / static_cast<double>(inputs.rows) : 0.0;
  });
}

void ShrinkToAll(const InputStatistics& all, InputStatistics& inputs) {
  if (inputs.rows == 0) {
    inputs.k = all.k;
    inputs.gram = all.gram;
    return;
  }
  Shrink(inputs, [&](size_t i, size_t j) { return double{all.gram.data()[i * all.k + j]}; });
}

}  // namespace pinion
