#include "engine/calibrate/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/base/check.h"

namespace pinion {
namespace {

constexpr size_t kRows = 70, kTokens = 256;
constexpr double kDamping = 0.01;
const RoundingScheme kScheme{4, 32, true};

std::unique_ptr<Ranks> StartTeam(int threads) {
  Plan plan;
  plan.ranks.push_back({0, {}, {}, threads});
  auto ranks = Ranks::Start(plan);
  CHECK(ranks) << ranks.error().message;
  return *std::move(ranks);
}

// Weights, and inputs with correlated channels, as activations are.
struct Problem {
  explicit Problem(size_t columns) : k(columns), weights(kRows * k), inputs(kTokens * k) {
    std::mt19937 rng(20261121);
    std::normal_distribution<float> normal;
    for (float& w : weights) w = normal(rng);
    for (size_t t = 0; t < kTokens; ++t) {
      const float common = normal(rng);
      for (size_t i = 0; i < k; ++i) inputs[t * k + i] = common + normal(rng);
    }
  }

  std::vector<double> Gram() const {
    std::vector<double> gram(k * k);
    for (size_t t = 0; t < kTokens; ++t)
      for (size_t i = 0; i < k; ++i)
        for (size_t j = 0; j < k; ++j)
          gram[i * k + j] += static_cast<double>(inputs[t * k + i]) * inputs[t * k + j];
    return gram;
  }

  // Of the products with all inputs.
  double Error(const std::vector<float>& rounded) const {
    double error = 0;
    for (size_t row = 0; row < kRows; ++row)
      for (size_t t = 0; t < kTokens; ++t) {
        double difference = 0;
        for (size_t i = 0; i < k; ++i)
          difference +=
              static_cast<double>(weights[row * k + i] - rounded[row * k + i]) * inputs[t * k + i];
        error += difference * difference;
      }
    return error;
  }

  size_t k;
  std::vector<float> weights, inputs;
};

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
  AlignedFloats inputs(problem.k * kTokens), gram(problem.k * problem.k);
  for (size_t i = 0; i < problem.k; ++i)
    for (size_t t = 0; t < kTokens; ++t)
      inputs.data()[i * kTokens + t] = problem.inputs[t * problem.k + i];
  ranks->Run([&](const Worker& worker) {
    AddOuterProducts(table, worker,
                     {gram.data(), problem.k, problem.k, inputs.data(), inputs.data(), kTokens, 1});
  });
  Rounded rounded(problem);
  const RoundingJob job{problem.weights.data(),
                        kRows,
                        problem.k,
                        kScheme,
                        rounded.codes.data(),
                        rounded.scales.data(),
                        rounded.offsets.data()};
  GramFactor factor(std::move(gram), problem.k, kDamping);
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
  std::vector<double> h = problem.Gram();
  double mean = 0;
  for (size_t i = 0; i < k; ++i) mean += h[i * k + i] / static_cast<double>(k);
  for (size_t i = 0; i < k; ++i) h[i * k + i] += kDamping * mean;
  std::vector<double> inverse = Inverse(std::move(h), k);
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

double ShareOfEqualCodes(const Rounded& a, const Rounded& b) {
  size_t equal = 0;
  for (size_t i = 0; i < a.codes.size(); ++i) equal += a.codes[i] == b.codes[i];
  return static_cast<double>(equal) / static_cast<double>(a.codes.size());
}

class GptqOfColumns : public ::testing::TestWithParam<size_t> {};
// Below, at and above a block of 64, and several blocks with a rest.
INSTANTIATE_TEST_SUITE_P(Columns, GptqOfColumns, ::testing::Values(32, 64, 96, 224));

TEST_P(GptqOfColumns, RoundsAsThePaperDoes) {
  const Problem problem(GetParam());
  const Rounded ours = RoundByGptq(problem, 2), theirs = RoundAsThePaper(problem);
  EXPECT_EQ(ours.scales, theirs.scales);
  // float32 against double: a code between two values may differ and change those after it.
  EXPECT_GT(ShareOfEqualCodes(ours, theirs), 0.98);
  const double error = problem.Error(ours.Values(problem.k));
  EXPECT_NEAR(error, problem.Error(theirs.Values(problem.k)), 0.02 * error);
}

TEST_P(GptqOfColumns, ErrsLessThanRoundingToTheNearest) {
  const Problem problem(GetParam());
  Rounded nearest(problem);
  for (size_t row = 0; row < kRows; ++row)
    RoundRow(kScheme, problem.weights.data() + row * problem.k, problem.k,
             nearest.codes.data() + row * problem.k, nearest.scales.data() + row * nearest.groups,
             nearest.offsets.data() + row * nearest.groups);
  const Rounded gptq = RoundByGptq(problem, 1);
  EXPECT_LT(problem.Error(gptq.Values(problem.k)), 0.7 * problem.Error(nearest.Values(problem.k)));
}

TEST(Gptq, DoesNotDependOnTheNumberOfThreads) {
  const Problem problem(160);
  EXPECT_EQ(RoundByGptq(problem, 1).codes, RoundByGptq(problem, 3).codes);
}

}  // namespace
}  // namespace pinion
