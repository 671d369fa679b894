#include "engine/calibrate/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

constexpr int kStrengths = 10;
// A smaller gain on the sample does not carry over to other text.
constexpr double kWorthIt = 0.95;
// Channels that hardly ever carry anything shall not be blown up without end.
constexpr float kSmallestFactor = 1e-4f, kSmallestMagnitude = 1e-5f;

class Search {
 public:
  Search(const kernels::Table& table, Ranks& ranks, const ScaledMatrix& matrix, ScaleRule rule)
      : table_(table),
        ranks_(ranks),
        matrix_(matrix),
        rule_(rule),
        k_(matrix.inputs.k),
        k_padded_(matrix.inputs.k_padded()),
        rows_(matrix.inputs.sample_rows),
        exact_((matrix.n + kBlockN - 1) / kBlockN * kBlockN * rows_),
        x_(rows_ * k_padded_) {}

  std::vector<float> Run() {
    std::vector<float> best(k_, 1.0f);
    if (rows_ == 0) return best;
    MakeExact();
    double least = kWorthIt * Error(best);
    for (int step = 1; step <= kStrengths; ++step) {
      std::vector<float> factors = Factors(static_cast<float>(step) / kStrengths);
      const double error = Error(factors);
      if (error >= least) continue;
      least = error;
      best = std::move(factors);
    }
    return best;
  }

 private:
  std::vector<float> Factors(float strength) const {
    const InputStatistics& inputs = matrix_.inputs;
    std::vector<float> factors(k_);
    const std::vector<float> widest = rule_ == ScaleRule::kSmoothQuant ? Widest() : factors;
    for (size_t i = 0; i < k_; ++i) {
      const float x = rule_ == ScaleRule::kAwq
                          ? static_cast<float>(inputs.sums[i] / static_cast<double>(inputs.rows))
                          : inputs.largest[i];
      factors[i] = std::pow(std::max(x, kSmallestMagnitude), strength);
      if (rule_ == ScaleRule::kSmoothQuant)
        factors[i] /= std::pow(std::max(widest[i], kSmallestMagnitude), 1 - strength);
    }
    const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
    const float middle = std::sqrt(*low * *high);
    for (float& factor : factors) factor = std::max(factor / middle, kSmallestFactor);
    return factors;
  }

  // Of each input channel, the weight of the largest magnitude.
  std::vector<float> Widest() const {
    std::vector<float> widest(k_);
    for (size_t row = 0; row < matrix_.n; ++row)
      for (size_t i = 0; i < k_; ++i)
        widest[i] = std::max(widest[i], std::abs(matrix_.weights[row * k_ + i]));
    return widest;
  }

  // x / s, rounded as the scheme's activations are.
  void ScaleSample(const std::vector<float>& factors) {
    for (size_t row = 0; row < rows_; ++row) {
      const float* src = matrix_.inputs.sample.data() + row * k_padded_;
      float* dst = x_.data() + row * k_padded_;
      float largest = 0;
      for (size_t i = 0; i < k_; ++i) {
        dst[i] = src[i] / factors[i];
        largest = std::max(largest, std::abs(dst[i]));
      }
      if (rule_ != ScaleRule::kSmoothQuant || largest == 0) continue;
      const float scale = largest / 127;
      for (size_t i = 0; i < k_; ++i) dst[i] = std::nearbyint(dst[i] / scale) * scale;
    }
  }

  // The products of `x` with 64 rows of weights, [rows][64].
  void MultiplyBlock(const float* x, const AlignedFloats& weights, size_t count, float* products,
                     AlignedFloats& packed) const {
    kernels::PackBlock(packed.bytes(), Dtype::kF32, weights.bytes(), Dtype::kF32, k_, count, k_);
    kernels::Gemm(table_, Dtype::kF32, {x, packed.bytes(), products, rows_, k_padded_, 1, kBlockN});
  }

  template <typename Fill, typename Use>
  void ForBlocks(const float* x, const Fill& fill, const Use& use) {
    ranks_.Run([&](const Worker& worker) {
      AlignedFloats weights(kBlockN * k_), packed(kBlockN * k_padded_), products(kBlockN * rows_);
      worker.Share((matrix_.n + kBlockN - 1) / kBlockN, 1, [&](size_t block, size_t) {
        const size_t first = block * kBlockN, count = std::min(kBlockN, matrix_.n - first);
        fill(first, count, weights.data());
        MultiplyBlock(x, weights, count, products.data(), packed);
        use(worker, block, products.data());
      });
    });
  }

  void MakeExact() {
    ForBlocks(
        matrix_.inputs.sample.data(),
        [&](size_t first, size_t count, float* dst) {
          std::copy_n(matrix_.weights + first * k_, count * k_, dst);
        },
        [&](const Worker&, size_t block, const float* products) {
          std::copy_n(products, rows_ * kBlockN, exact_.data() + block * rows_ * kBlockN);
        });
  }

  // Rows of W s, rounded.
  void RoundRows(const std::vector<float>& factors, size_t first, size_t count, float* dst) const {
    const size_t group = matrix_.scheme.group_of(k_), groups = (k_ + group - 1) / group;
    std::vector<int8_t> codes(k_);
    std::vector<float> scales(groups), offsets(groups);
    for (size_t row = 0; row < count; ++row, dst += k_) {
      for (size_t i = 0; i < k_; ++i) dst[i] = matrix_.weights[(first + row) * k_ + i] * factors[i];
      RoundRow(matrix_.scheme, dst, k_, codes.data(), scales.data(), offsets.data());
      for (size_t i = 0; i < k_; ++i)
        dst[i] = scales[i / group] * static_cast<float>(codes[i]) + offsets[i / group];
    }
  }

  // The sum of squares between the products and the exact ones; does not depend on the threads.
  double Error(const std::vector<float>& factors) {
    ScaleSample(factors);
    std::vector<double> errors((matrix_.n + kBlockN - 1) / kBlockN);
    ForBlocks(
        x_.data(),
        [&](size_t first, size_t count, float* dst) { RoundRows(factors, first, count, dst); },
        [&](const Worker&, size_t block, const float* products) {
          const float* exact = exact_.data() + block * rows_ * kBlockN;
          for (size_t i = 0; i < rows_ * kBlockN; ++i) {
            const double difference = products[i] - exact[i];
            errors[block] += difference * difference;
          }
        });
    double sum = 0;
    for (const double error : errors) sum += error;
    return sum;
  }

  const kernels::Table& table_;
  Ranks& ranks_;
  const ScaledMatrix& matrix_;
  const ScaleRule rule_;
  const size_t k_, k_padded_, rows_;
  AlignedFloats exact_;  // [blocks][rows][64]
  AlignedFloats x_;      // [rows][k_padded], scaled and rounded
};

}  // namespace

std::vector<float> SearchScales(const kernels::Table& table, Ranks& ranks,
                                const ScaledMatrix& matrix, ScaleRule rule) {
  return Search(table, ranks, matrix, rule).Run();
}

}  // namespace pinion
