#include <algorithm>

#include "tests/kernels/row.h"

namespace pinion::kernels::testing {
namespace {

class RecurrentTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& kernels_ = TableFor(GetParam());
};

// Both sides of every vector edge and of four vectors, and a real width.
constexpr size_t kValueDims[] = {1, 7, 8, 16, 17, 31, 32, 33, 63, 64, 65, 128, 200};

// Sums of key_dim products err by (key_dim + 2) u of the sum of magnitudes, which is what is
// computed beside each of them; an updated cell adds the error of `change`, and the output that of
// all cells.
// each: with a decay for each channel of the key.
void CheckDeltaRule(const Table& kernels, bool each) {
  for (const size_t key_dim : {size_t{8}, size_t{24}, size_t{128}}) {
    for (const size_t n : kValueDims) {
      const Row q(Normal(key_dim, 1)), k(Normal(key_dim, 2, 0.2f)), v(Normal(n, 3));
      const std::vector<float> before = Normal(key_dim * n, 4);
      Row state(before);
      Guarded<float> out(n);
      constexpr float kDecay = 0.7f, kBeta = 0.4f;
      std::vector<float> decays(key_dim, kDecay);
      for (size_t i = 0; each && i < key_dim; ++i)
        decays[i] = static_cast<float>(i + 1) / static_cast<float>(key_dim);
      const Row given(decays);
      kernels.delta_rule({.state = state.data(),
                          .q = q.data(),
                          .k = k.data(),
                          .v = v.data(),
                          .key_dim = key_dim,
                          .value_dim = n,
                          .decay = kDecay,
                          .beta = kBeta,
                          .out = out.data(),
                          .decays = each ? given.data() : nullptr});
      const double sum_error = (static_cast<double>(key_dim) + 4) * kU;
      for (size_t column = 0; column < n; ++column) {
        double known = 0, magnitude = std::abs(v[column]), want = 0, error = 0;
        for (size_t i = 0; i < key_dim; ++i) {
          const double term = double{decays[i]} * k[i] * before[i * n + column];
          known += term, magnitude += std::abs(term);
        }
        const double change = kBeta * (v[column] - known);
        for (size_t i = 0; i < key_dim; ++i) {
          const double kept = double{decays[i]} * before[i * n + column],
                       cell = kept + k[i] * change;
          const double bound =
              sum_error * std::abs(k[i]) * magnitude + 4 * kU * (std::abs(kept) + std::abs(cell));
          ASSERT_NEAR(state[i * n + column], cell, bound) << key_dim << " x " << n;
          want += q[i] * cell;
          error += std::abs(q[i]) * (bound + sum_error * std::abs(cell));
        }
        ASSERT_NEAR(out[column], want, error) << key_dim << " x " << n << ", column " << column;
      }
    }
  }
}

TEST_P(RecurrentTest, DeltaRuleIsWithinTheSummationBound) { CheckDeltaRule(kernels_, false); }
TEST_P(RecurrentTest, EveryChannelOfAKeyMayDecayByItself) { CheckDeltaRule(kernels_, true); }

// In place: the tokens' own rows of inputs are those of the result.
void CheckShortConv(const Table& kernels, size_t width, size_t rows, size_t n) {
  const size_t weight_stride = n + 3, stride = n + 5;
  const Row weights(Normal(width * weight_stride, 1));
  const std::vector<float> before = Normal((width - 1) * n, 2), own = Normal(rows * stride, 3);
  const Row earlier(before);
  Row result(own);
  const auto input = [&](size_t i) {
    return i + 1 < width ? before.data() + i * n : own.data() + (i + 1 - width) * stride;
  };
  std::vector<const float*> inputs;
  for (size_t i = 0; i + 1 < width; ++i) inputs.push_back(earlier.data() + i * n);
  for (size_t row = 0; row < rows; ++row) inputs.push_back(result.data() + row * stride);
  kernels.short_conv({.inputs = inputs.data(),
                      .weights = weights.data(),
                      .width = width,
                      .weight_stride = weight_stride,
                      .n = n,
                      .rows = rows,
                      .dst = result.data(),
                      .stride = stride});
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < stride; ++i) {
      double want = own[row * stride + i], magnitude = 0;
      for (size_t tap = 0; tap < width && i < n; ++tap) {
        const double term = double{weights[tap * weight_stride + i]} * input(row + tap)[i];
        want = tap == 0 ? term : want + term, magnitude += std::abs(term);
      }
      ASSERT_NEAR(result[row * stride + i], want, (static_cast<double>(width) + 1) * kU * magnitude)
          << width << " taps, row " << row << " of " << rows << ", channel " << i << " of " << n;
    }
  }
}

TEST_P(RecurrentTest, ShortConvIsWithinTheSummationBound) {
  for (const size_t width : {2, 3, 4, 16})
    for (const size_t rows : {1, 2, 3, 7})
      for (const size_t n : kSizes) CheckShortConv(kernels_, width, rows, n);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, RecurrentTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
