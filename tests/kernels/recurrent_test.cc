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

// Each channel for itself, the oldest tap first, in the place of the newest.
TEST_P(RecurrentTest, ShortConvIsWithinTheSummationBound) {
  for (const size_t width : {2, 3, 4, 16}) {
    for (const size_t n : kSizes) {
      const size_t stride = n + 3;
      const Row weights(Normal(width * stride, 1));
      std::vector<std::vector<float>> rows;
      std::vector<const float*> taps;
      for (size_t tap = 0; tap + 1 < width; ++tap)
        rows.push_back(Normal(n, 2 + static_cast<unsigned>(tap)));
      for (const auto& row : rows) taps.push_back(row.data());
      rows.push_back(Normal(n, 99));
      Row newest(rows.back());
      taps.push_back(newest.data());
      kernels_.short_conv({.taps = taps.data(),
                           .weights = weights.data(),
                           .width = width,
                           .weight_stride = stride,
                           .n = n,
                           .dst = newest.data()});
      for (size_t i = 0; i < n; ++i) {
        double want = 0, magnitude = 0;
        for (size_t tap = 0; tap < width; ++tap) {
          const double term = double{weights[tap * stride + i]} * rows[tap][i];
          want += term, magnitude += std::abs(term);
        }
        ASSERT_NEAR(newest[i], want, (static_cast<double>(width) + 1) * kU * magnitude)
            << width << " taps of " << n << ", channel " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, RecurrentTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
