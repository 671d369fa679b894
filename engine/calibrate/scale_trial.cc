#include "engine/calibrate/scale_trial.h"

#include <algorithm>
#include <cmath>

namespace pinion {

using kernels::Dtype;
using kernels::kBlockN;

ScaleTrial::ScaleTrial(const kernels::Table& table, Ranks& ranks, const ScaleChoice& choice,
                       const ScaledMatrix& matrix)
    : table_(table),
      ranks_(ranks),
      choice_(choice),
      matrix_(matrix),
      k_(matrix.inputs.k),
      k_padded_(matrix.inputs.k_padded()),
      rows_(matrix.inputs.sample_rows),
      blocks_((matrix.n + kBlockN - 1) / kBlockN),
      exact_(blocks_ * kBlockN * rows_),
      x_(rows_ * k_padded_) {
  ForBlocks(
      matrix_.inputs.sample.data(),
      [&](size_t first, size_t count, float* dst) {
        std::copy_n(matrix_.weights + first * k_, count * k_, dst);
      },
      [&](size_t block, const float* products) {
        std::copy_n(products, rows_ * kBlockN, exact_.data() + block * rows_ * kBlockN);
      });
}

double ScaleTrial::Error(const std::vector<float>& factors) {
  ScaleSample(factors);
  std::vector<double> errors(blocks_);
  ForBlocks(
      x_.data(),
      [&](size_t first, size_t count, float* dst) { RoundRows(factors, first, count, dst); },
      [&](size_t block, const float* products) {
        const float* exact = exact_.data() + block * rows_ * kBlockN;
        for (size_t i = 0; i < rows_ * kBlockN; ++i) {
          const double difference = products[i] - exact[i];
          errors[block] += difference * difference;
        }
      });
  double sum = 0;
  for (const double error : errors) sum += error;
  return sum * static_cast<double>(matrix_.inputs.rows) / static_cast<double>(rows_);
}

// Computes x / s, rounded as the scheme rounds activations.
void ScaleTrial::ScaleSample(const std::vector<float>& factors) {
  for (size_t row = 0; row < rows_; ++row) {
    const float* src = matrix_.inputs.sample.data() + row * k_padded_;
    float* dst = x_.data() + row * k_padded_;
    float largest = 0;
    for (size_t i = 0; i < k_; ++i) {
      dst[i] = src[i] / factors[i];
      largest = std::max(largest, std::abs(dst[i]));
    }
    if (choice_.rule != ScaleRule::kSmoothQuant || largest == 0) continue;
    const float scale = largest / 127;
    for (size_t i = 0; i < k_; ++i) dst[i] = std::nearbyint(dst[i] / scale) * scale;
  }
}

// Computes rows of W s, rounded.
void ScaleTrial::RoundRows(const std::vector<float>& factors, size_t first, size_t count,
                           float* dst) const {
  const size_t group = choice_.scheme.group_of(k_), groups = (k_ + group - 1) / group;
  std::vector<int8_t> codes(k_);
  std::vector<float> scales(groups), offsets(groups);
  for (size_t row = 0; row < count; ++row, dst += k_) {
    for (size_t i = 0; i < k_; ++i) dst[i] = matrix_.weights[(first + row) * k_ + i] * factors[i];
    RoundRow(choice_.scheme, dst, k_, codes.data(), scales.data(), offsets.data());
    for (size_t i = 0; i < k_; ++i)
      dst[i] = scales[i / group] * static_cast<float>(codes[i]) + offsets[i / group];
  }
}

// The products of `x` with 64 rows of weights, [rows][64].
void ScaleTrial::MultiplyBlock(const float* x, const AlignedFloats& weights, size_t count,
                               float* products, AlignedFloats& packed) const {
  kernels::PackBlock(packed.bytes(), Dtype::kF32, weights.bytes(), Dtype::kF32, k_, count, k_);
  kernels::Gemm(table_, Dtype::kF32, {x, packed.bytes(), products, rows_, k_padded_, 1, kBlockN});
}

// fill(first row, rows, weights [rows][k]); use(block, products [sample rows][64]).
template <typename Fill, typename Use>
void ScaleTrial::ForBlocks(const float* x, const Fill& fill, const Use& use) {
  ranks_.Run([&](const Worker& worker) {
    AlignedFloats weights(kBlockN * k_), packed(kBlockN * k_padded_), products(kBlockN * rows_);
    worker.Share(blocks_, 1, [&](size_t block, size_t) {
      const size_t first = block * kBlockN, count = std::min(kBlockN, matrix_.n - first);
      fill(first, count, weights.data());
      MultiplyBlock(x, weights, count, products.data(), packed);
      use(block, products.data());
    });
  });
}

}  // namespace pinion
