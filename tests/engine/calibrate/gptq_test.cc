#include "engine/calibrate/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/base/check.h"

namespace pinion {
namespace {

constexpr size_t kRows = 70;
const RoundingScheme kScheme{4, 32, true};

std::unique_ptr<Ranks> StartTeam(int threads) {
  Plan plan;
  plan.ranks.push_back({0, {}, {}, threads});
  auto ranks = Ranks::Start(plan);
  CHECK(ranks) << ranks.error().message;
  return *std::move(ranks);
}

struct Problem {
  Problem(size_t columns, size_t rows_of_inputs, double share)
      : k(columns),
        tokens(rows_of_inputs),
        damping(share),
        weights(kRows * columns),
        inputs(rows_of_inputs * columns) {}

  // Damped.
  std::vector<double> Gram() const {
    std::vector<double> gram(k * k);
    for (size_t t = 0; t < tokens; ++t)
      for (size_t i = 0; i < k; ++i)
        for (size_t j = 0; j < k; ++j)
          gram[i * k + j] += static_cast<double>(inputs[t * k + i]) * inputs[t * k + j];
    double mean = 0;
    for (size_t i = 0; i < k; ++i) mean += gram[i * k + i] / static_cast<double>(k);
    for (size_t i = 0; i < k; ++i) gram[i * k + i] += damping * mean;
    return gram;
  }

  size_t k, tokens;
  double damping;                      // of the mean of the Gram matrix's diagonal
  std::vector<float> weights, inputs;  // [kRows][k], [tokens][k]
};

// Inputs with correlated channels, as activations are.
Problem Correlated(size_t columns) {
  Problem problem(columns, 256, 0.01);
  std::mt19937 rng(20261121);
  std::normal_distribution<float> normal;
  for (float& w : problem.weights) w = normal(rng);
  for (size_t t = 0; t < problem.tokens; ++t) {
    const float common = normal(rng);
    for (size_t i = 0; i < columns; ++i) problem.inputs[t * columns + i] = common + normal(rng);
  }
  return problem;
}

// A problem of which float32 holds every number, and no value is halfway between two codes: the
// Gram matrix is U D U^T, where a column of U has one or three halves and D is 1 or 4; scales are
// 1/4, so that errors, like weights, are odd multiples of 2^-12, and best values of 2^-12 or 2^-13.
Problem Exact(size_t columns) {
  Problem problem(columns, columns, 0);
  std::mt19937 rng(20261123);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  for (float& w : problem.weights) w = (static_cast<float>(below(7168)) * 2 - 7167) / 4096;
  // In float16 a seventh of it is 1/4.
  for (size_t begin = 0; begin < problem.weights.size(); begin += kScheme.group)
    problem.weights[begin + below(kScheme.group)] = (below(2) == 0 ? 7169.0f : -7169.0f) / 4096;
  for (size_t j = 0; j < columns; ++j) {
    float* column = problem.inputs.data() + j * columns;
    const float root = below(2) == 0 ? 1 : 2;
    column[j] = root;
    for (size_t halves = std::min(j, j < 3 ? size_t{1} : size_t{3}); halves > 0;) {
      float& one = column[below(j)];
      if (one != 0) continue;
      one = below(2) == 0 ? root / 2 : -root / 2;
      --halves;
    }
  }
  return problem;
}

struct Rounded {
  Rounded(const Problem& problem)
      : groups((problem.k + kScheme.group - 1) / kScheme.group),
        codes(kRows * problem.k),
        scales(kRows * groups),
        offsets(kRows * groups) {}
  std::vector<float> Values(size_t k) const {
    std::vector<float> values(codes.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = scales[i / k * groups + i % k / kScheme.group] * static_cast<float>(codes[i]);
    return values;
  }
  size_t groups;
  std::vector<int8_t> codes;
  std::vector<float> scales, offsets;
};

Rounded RoundByGptq(const Problem& problem, int threads) {
  const auto ranks = StartTeam(threads);
  const kernels::Table& table = kernels::TableFor(kernels::UsableIsas().back());
  AlignedFloats inputs(problem.k * problem.tokens), gram(problem.k * problem.k);
  for (size_t i = 0; i < problem.k; ++i)
    for (size_t t = 0; t < problem.tokens; ++t)
      inputs.data()[i * problem.tokens + t] = problem.inputs[t * problem.k + i];
  ranks->Run([&](const Worker& worker) {
    AddOuterProducts(
        table, worker,
        {gram.data(), problem.k, problem.k, inputs.data(), inputs.data(), problem.tokens, 1});
  });
  Rounded rounded(problem);
  const RoundingJob job{problem.weights.data(),
                        kRows,
                        problem.k,
                        kScheme,
                        rounded.codes.data(),
                        rounded.scales.data(),
                        rounded.offsets.data()};
  GramFactor factor(std::move(gram), problem.k, problem.damping);
  Gptq gptq(factor, job);
  ranks->Run([&](const Worker& worker) {
    factor.Factor(table, worker);
    worker.TeamBarrier();
    gptq.Round(table, worker);
  });
  return rounded;
}

// The inverse by Gauss and Jordan; H is positive definite.
std::vector<double> Inverse(std::vector<double> h, size_t k) {
  std::vector<double> inverse(k * k);
  for (size_t i = 0; i < k; ++i) inverse[i * k + i] = 1;
  for (size_t i = 0; i < k; ++i) {
    const double pivot = h[i * k + i];
    for (size_t j = 0; j < k; ++j) h[i * k + j] /= pivot, inverse[i * k + j] /= pivot;
    for (size_t row = 0; row < k; ++row) {
      const double factor = row == i ? 0 : h[row * k + i];
      for (size_t j = 0; j < k && factor != 0; ++j) {
        h[row * k + j] -= factor * h[i * k + j];
        inverse[row * k + j] -= factor * inverse[i * k + j];
      }
    }
  }
  return inverse;
}

// GPTQ as its paper begins (equation 2): round a column, let all later ones make up for it, take
// it out of the inverse.
Rounded RoundAsThePaper(const Problem& problem) {
  const size_t k = problem.k;
  std::vector<double> inverse = Inverse(problem.Gram(), k);
  Rounded rounded(problem);
  for (size_t row = 0; row < kRows; ++row)
    RoundRow(kScheme, problem.weights.data() + row * k, k, rounded.codes.data() + row * k,
             rounded.scales.data() + row * rounded.groups,
             rounded.offsets.data() + row * rounded.groups);
  std::vector<double> w(problem.weights.begin(), problem.weights.end());
  for (size_t i = 0; i < k; ++i) {
    const double pivot = inverse[i * k + i];
    for (size_t row = 0; row < kRows; ++row) {
      const float scale = rounded.scales[row * rounded.groups + i / kScheme.group];
      int8_t& code = rounded.codes[row * k + i];
      code = RoundWeight(kScheme.range(), {scale, 0}, static_cast<float>(w[row * k + i]));
      const double error = (w[row * k + i] - scale * code) / pivot;
      for (size_t j = i; j < k; ++j) w[row * k + j] -= error * inverse[i * k + j];
    }
    for (size_t r = i + 1; r < k; ++r)
      for (size_t c = i + 1; c < k; ++c)
        inverse[r * k + c] -= inverse[r * k + i] * inverse[i * k + c] / pivot;
  }
  return rounded;
}

Rounded RoundToNearest(const Problem& problem) {
  Rounded nearest(problem);
  for (size_t row = 0; row < kRows; ++row)
    RoundRow(kScheme, problem.weights.data() + row * problem.k, problem.k,
             nearest.codes.data() + row * problem.k, nearest.scales.data() + row * nearest.groups,
             nearest.offsets.data() + row * nearest.groups);
  return nearest;
}

// Of the products with the inputs, as the damped Gram matrix counts it.
double Error(const Problem& problem, const Rounded& rounded) {
  const size_t k = problem.k;
  const std::vector<double> gram = problem.Gram();
  const std::vector<float> values = rounded.Values(k);
  double error = 0;
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<double> off(k);
    for (size_t i = 0; i < k; ++i)
      off[i] = static_cast<double>(problem.weights[row * k + i]) - values[row * k + i];
    for (size_t i = 0; i < k; ++i)
      for (size_t j = 0; j < k; ++j) error += off[i] * gram[i * k + j] * off[j];
  }
  return error;
}

// D of U D U^T: what a column's own error counts if all later columns make up for it.
std::vector<double> Pivots(std::vector<double> h, size_t k) {
  std::vector<double> pivots(k);
  for (size_t j = k; j-- > 0;) {
    pivots[j] = h[j * k + j];
    for (size_t a = 0; a < j; ++a)
      for (size_t b = 0; b < j; ++b) h[a * k + b] -= h[j * k + a] * h[j * k + b] / pivots[j];
  }
  return pivots;
}

class GptqOfColumns : public ::testing::TestWithParam<size_t> {};
// Below, at and above a block of 64, and several blocks with a rest.
INSTANTIATE_TEST_SUITE_P(Columns, GptqOfColumns, ::testing::Values(32, 64, 96, 224));

TEST_P(GptqOfColumns, RoundsAsThePaperDoes) {
  const Problem problem = Exact(GetParam());
  const Rounded ours = RoundByGptq(problem, 2), theirs = RoundAsThePaper(problem);
  EXPECT_THAT(ours.scales, ::testing::Each(0.25f));
  EXPECT_EQ(ours.codes, theirs.codes);
  EXPECT_NE(ours.codes, RoundToNearest(problem).codes);
}

// The distance of any value from its code is evenly spread over a step of the scale: in the mean of
// squares scale^2 / 12, with a standard deviation of scale^2 / sqrt(180). It counts the column's
// pivot, so the sum over all columns is known as well as so many squares are, here to five standard
// deviations. One weight in a group of 32 gives the scale and may have no distance at all.
TEST_P(GptqOfColumns, ErrsAsMuchAsLaterColumnsCannotMakeUpFor) {
  const Problem problem = Correlated(GetParam());
  const Rounded gptq = RoundByGptq(problem, 1);
  const std::vector<double> pivots = Pivots(problem.Gram(), problem.k);
  double sum = 0, squares = 0;
  for (size_t row = 0; row < kRows; ++row)
    for (size_t i = 0; i < problem.k; ++i) {
      const double scale = gptq.scales[row * gptq.groups + i / kScheme.group];
      const double counts = scale * scale * pivots[i];
      sum += counts;
      squares += counts * counts;
    }
  const double error = Error(problem, gptq), expected = sum / 12;
  const double spread = 5 * std::sqrt(squares / 180);
  EXPECT_LT(error, expected + spread);
  EXPECT_GT(error, expected * 31 / 32 - spread);
  EXPECT_LT(error, Error(problem, RoundToNearest(problem)));
}

// (3, 5) and a quarter of their mean make (4, 6): 3 / 6 of the second column's.
TEST(GramFactor, IsDampedByAShareOfTheDiagonalsMean) {
  const auto ranks = StartTeam(1);
  AlignedFloats gram(4);
  const float lower[] = {3, 0, 3, 5};
  std::copy_n(lower, 4, gram.data());
  GramFactor factor(std::move(gram), 2, 0.25);
  ranks->Run([&](const Worker& worker) {
    factor.Factor(kernels::TableFor(kernels::UsableIsas().back()), worker);
  });
  EXPECT_FLOAT_EQ(factor.column(1)[0], 0.5f);
}

TEST(Gptq, DoesNotDependOnTheNumberOfThreads) {
  const Problem problem = Correlated(160);
  EXPECT_EQ(RoundByGptq(problem, 1).codes, RoundByGptq(problem, 3).codes);
}

}  // namespace
}  // namespace pinion
