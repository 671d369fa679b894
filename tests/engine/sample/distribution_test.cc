// The draws follow the distribution that the parameters define, and the seed alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "engine/sample/random.h"
#include "engine/sample/sampler.h"
#include "tests/engine/sample/draws.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Pearson's statistic of the counts against exact probabilities; ids of probability 0 must not
// occur.
double ChiSquare(const std::map<int32_t, int>& counts, const std::vector<double>& probability,
                 int draws) {
  double statistic = 0;
  for (size_t id = 0; id < probability.size(); ++id) {
    const auto found = counts.find(static_cast<int32_t>(id));
    const double seen = found == counts.end() ? 0 : found->second;
    if (probability[id] == 0) {
      EXPECT_EQ(seen, 0) << "id " << id << " is filtered out";
      continue;
    }
    const double expected = probability[id] * draws;
    statistic += (seen - expected) * (seen - expected) / expected;
  }
  return statistic;
}

// The distribution that the filters should leave, computed as plainly as possible: sort everything,
// cut, normalise.
std::vector<double> ExactDistribution(const SamplingParams& params,
                                      const std::vector<float>& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(logits.size(), 0);
  for (const size_t id : order)
    p[id] = std::exp((double{logits[id]} - logits[order[0]]) / params.temperature);
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const bool outside_k = params.top_k > 0 && rank >= static_cast<size_t>(params.top_k);
    if (outside_k || p[order[rank]] < params.min_p) p[order[rank]] = 0;
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  double passed = 0, kept = 0;
  for (const size_t id : order) {
    if (passed >= params.top_p * sum) p[id] = 0;
    passed += p[id];
    kept += p[id];
  }
  for (double& value : p) value /= kept;
  return p;
}

std::vector<float> NormalLogits(size_t vocabulary, float deviation, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(vocabulary);
  for (float& x : logits) x = normal(rng);
  return logits;
}

// ---- Greedy ---------------------------------------------------------------------------------

TEST(Greedy, TakesTheLargestAndOfEqualsTheLowest) {
  EXPECT_EQ(SampleOnce({}, {1, 3, 2}).id, 1);
  EXPECT_EQ(SampleOnce({}, {1, 3, 3}).id, 1);
  EXPECT_EQ(SampleOnce(AtTemperature(1e-6), {1, 3, 2.9999f}).id, 1);
}

// ---- Logits that are not finite ---------------------------------------------------------------

// Whatever is drawn of the others would be of a model that has computed nonsense.
TEST(Sampler, ChoosesNoTokenIfALogitIsNanOrPositiveInfinity) {
  SamplingParams filtered = AtTemperature(1);
  filtered.top_k = 4;
  filtered.top_p = 0.99;
  filtered.min_p = 0.001;
  filtered.logprobs = 2;
  filtered.frequency_penalty = 1;
  filtered.logit_bias = {{1, 3}};
  for (const SamplingParams& params : {SamplingParams(), AtTemperature(1), filtered}) {
    for (const float broken : {kNan, kInfinity}) {
      for (size_t at = 0; at < 5; ++at) {
        std::vector<float> logits = {2, 1, -kInfinity, 1.5f, 3};
        logits[at] = broken;
        EXPECT_EQ(SampleOnce(params, logits).id, SampledToken::kNotFinite) << broken << " " << at;
      }
      EXPECT_EQ(SampleOnce(params, std::vector<float>(37, broken)).id, SampledToken::kNotFinite);
    }
  }
}

// A request must not succeed or fail by which tokens it forbids: the weights are broken either way.
TEST(Sampler, LogitsOfForbiddenTokensMustBeFiniteToo) {
  SamplingParams allowed, word, least, thought;
  allowed.allowed_token_ids = {1, 2};
  word.bad_words_ids = {{0}};
  least.min_tokens = 1;
  least.stop_token_ids = {0};
  thought.thought = {.budget = 0, .begin = {3}, .end = {2}, .forced = {2}, .in_prompt = 0};
  for (const SamplingParams& params : {allowed, word, least, thought}) {
    EXPECT_GE(SampleOnce(params, {7, 1, 2, 0}).id, 1);
    EXPECT_EQ(SampleOnce(params, {kNan, 1, 2, 0}).id, SampledToken::kNotFinite);
  }
  const std::vector<uint32_t> mask{0b0110};
  std::vector<float> logits{kNan, 1, 2, 0};
  EXPECT_EQ(Sampler({}, 1, {}, {}).Sample(Scalar(), logits, mask).id, SampledToken::kNotFinite);
}

TEST(Sampler, ATokenThatCannotBeChosenDoesNotCount) {
  SamplingParams params;
  params.frequency_penalty = 2;
  Sampler sampler(params, 1, {}, {});
  std::vector<float> broken = {kNan, 0}, logits = {1, 0};
  EXPECT_EQ(sampler.Sample(Scalar(), broken).id, SampledToken::kNotFinite);
  EXPECT_EQ(sampler.drawn(), 0u);
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 0);
}

TEST(RateToken, SaysIfTheLogitsAreNotFinite) {
  for (const float broken : {kNan, kInfinity})
    EXPECT_EQ(RateToken(Scalar(), std::vector<float>{0, broken, 1}, 2, 1).id,
              SampledToken::kNotFinite);
  EXPECT_EQ(RateToken(Scalar(), std::vector<float>{0, -kInfinity, 1}, 2, 1).id, 2);
}

// ---- The distribution -----------------------------------------------------------------------

struct Filter {
  const char* name;
  double temperature, top_p;
  int top_k;
  double min_p;
};
void PrintTo(const Filter& filter, std::ostream* out) { *out << filter.name; }

class Distribution : public ::testing::TestWithParam<Filter> {};

TEST_P(Distribution, MatchesTheExactProbabilities) {
  const Filter& filter = GetParam();
  SamplingParams params = AtTemperature(filter.temperature);
  params.top_p = filter.top_p;
  params.top_k = filter.top_k;
  params.min_p = filter.min_p;
  const std::vector<float> logits = NormalLogits(40, 1, 7);
  constexpr int kDraws = 40000;
  const std::vector<double> exact = ExactDistribution(params, logits);
  const auto kept = std::count_if(exact.begin(), exact.end(), [](double p) { return p > 0; });
  ASSERT_GT(kept, 1) << "a test of one outcome shows nothing";
  // A chi-square variable has mean k and variance 2k: 5 deviations are beyond chance.
  const double freedom = static_cast<double>(kept - 1);
  EXPECT_LT(ChiSquare(Draw(params, logits, kDraws), exact, kDraws),
            freedom + 5 * std::sqrt(2 * freedom));
}

INSTANTIATE_TEST_SUITE_P(
    Filters, Distribution,
    ::testing::Values(Filter{"plain", 1, 1, 0, 0}, Filter{"cold", 0.5, 1, 0, 0},
                      Filter{"hot", 2.5, 1, -1, 0}, Filter{"top_k", 1, 1, 5, 0},
                      Filter{"top_k_beyond", 1, 1, 500, 0}, Filter{"top_p", 1, 0.8, 0, 0},
                      // Four tries miss it with a chance of 0.7^4: a quarter of its draws are from
                      // what its border leaves.
                      Filter{"small_top_p", 2.5, 0.3, 0, 0}, Filter{"min_p", 1, 1, 0, 0.1},
                      Filter{"all", 1.3, 0.9, 12, 0.05}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Sampler, SeesADifferenceOfOneTemperatureStep) {  // the chi-square test has teeth
  const std::vector<float> logits = NormalLogits(40, 1, 7);
  const std::vector<double> other = ExactDistribution(AtTemperature(1.1), logits);
  EXPECT_GT(ChiSquare(Draw(AtTemperature(1), logits, 40000), other, 40000),
            39 + 5 * std::sqrt(78.));
}

// Every filter agrees with sorting the whole vocabulary, whatever the shape of the distribution.
TEST(Sampler, KeepsTheSameTokensAsSorting) {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    SamplingParams params = AtTemperature(1);
    params.top_p = 0.05 + 0.9 * static_cast<double>(rng() % 1000) / 1000;
    params.top_k = round % 3 == 0 ? 1 + static_cast<int>(rng() % 60) : 0;
    params.min_p = round % 4 == 0 ? 0.02 : 0;
    std::vector<float> logits = NormalLogits(64, round % 2 ? 4.f : 0.3f, rng());
    if (round % 5 == 0)
      for (float& x : logits) x = std::round(x);  // many ties
    const std::vector<double> exact = ExactDistribution(params, logits);
    for (const auto& [id, count] : Draw(params, logits, 300, rng()))
      ASSERT_GT(exact[static_cast<size_t>(id)], 0) << "round " << round << ", id " << id;
    const double rarest = *std::min_element(exact.begin(), exact.end(), [](double a, double b) {
      return (a > 0 ? a : 2) < (b > 0 ? b : 2);
    });
    if (rarest < 0.05) continue;  // 300 draws miss p = 0.05 once in 5 million
    EXPECT_EQ(Draw(params, logits, 300, rng()).size(),
              static_cast<size_t>(
                  std::count_if(exact.begin(), exact.end(), [](double p) { return p > 0; })));
  }
}

TEST(Sampler, DrawsUniformlyFromEqualLogits) {
  for (const float level : {0.f, 1e4f, -1e4f}) {
    const std::vector<double> flat(16, 1. / 16);
    EXPECT_LT(ChiSquare(Draw(AtTemperature(1), std::vector<float>(16, level), 16000), flat, 16000),
              15 + 5 * std::sqrt(30.));
  }
}

TEST(Sampler, DrawsUniformlyFromALargeVocabulary) {
  // The weights are summed in blocks of 1,024: a draw goes into each of them, the short last one
  // too.
  constexpr size_t kVocabulary = 2500, kIdsOfACell = 50, kCells = kVocabulary / kIdsOfACell;
  constexpr int kDraws = 20000;
  std::map<int32_t, int> cells;
  const std::vector<float> logits(kVocabulary, 0.5f);
  for (const auto& [id, count] : Draw(AtTemperature(1), logits, kDraws))
    cells[id / static_cast<int32_t>(kIdsOfACell)] += count;
  EXPECT_LT(ChiSquare(cells, std::vector<double>(kCells, 1. / kCells), kDraws),
            49 + 5 * std::sqrt(98.));
}

TEST(Sampler, BreaksTiesOfTopKAndTopPByLowerId) {
  SamplingParams top_k = AtTemperature(1), top_p = AtTemperature(1);
  top_k.top_k = 3;
  top_p.top_p = 0.25;
  const std::vector<float> flat(12, 0.5f);
  for (const SamplingParams& params : {top_k, top_p}) {
    const auto counts = Draw(params, flat, 500);
    EXPECT_EQ(counts.size(), 3u);
    EXPECT_EQ(counts.rbegin()->first, 2);
  }
}

TEST(Sampler, IsGreedyWithATopKOfOneOrATinyTopP) {
  SamplingParams top_k = AtTemperature(1.5), top_p = AtTemperature(1.5);
  top_k.top_k = 1;
  top_p.top_p = 1e-12;
  const std::vector<float> logits = NormalLogits(1000, 1, 5);
  const int32_t best = SampleOnce({}, logits).id;
  for (const SamplingParams& params : {top_k, top_p})
    EXPECT_THAT(Draw(params, logits, 100), ElementsAre(Pair(best, 100)));
}

TEST(Sampler, BehavesAtExtremeTemperatures) {
  EXPECT_THAT(Draw(AtTemperature(1e-4), {1, 2, 1.99f}, 200), ElementsAre(Pair(1, 200)));
  EXPECT_EQ(Draw(AtTemperature(1e300), {100, -100, 0}, 300).size(), 3u);
}

TEST(Sampler, NeverDrawsMaskedLogits) {
  SamplingParams filtered = AtTemperature(1);
  filtered.top_k = 4;
  filtered.top_p = 0.99;
  filtered.min_p = 0.001;
  for (const SamplingParams& params : {AtTemperature(1), filtered}) {
    const auto counts = Draw(params, {-kInfinity, 1, -kInfinity, 1.5f, -kInfinity}, 500);
    EXPECT_EQ(counts.size(), 2u);
    EXPECT_TRUE(counts.contains(1) && counts.contains(3));
  }
}

TEST(Sampler, StaysInsideTheVocabularyIfAllTokensAreMasked) {
  SamplingParams params = AtTemperature(1);
  params.top_k = 2;
  params.top_p = 0.5;
  params.logprobs = 3;
  for (const SamplingParams& any : {params, SamplingParams()}) {
    const SampledToken token = SampleOnce(any, std::vector<float>(9, -kInfinity));
    EXPECT_EQ(token.id, 0);
    EXPECT_EQ(token.logprob, any.logprobs < 0 ? 0 : -std::numeric_limits<double>::infinity());
  }
}

// ---- The random stream ----------------------------------------------------------------------

TEST(Sampler, RandomStreamDependsOnlyOnTheSeed) {
  const std::vector<float> flat(1000, 0.f);
  const auto draw = [&](uint64_t seed, int noise) {
    Sampler sampler(AtTemperature(1), seed, {}, {}), other(AtTemperature(1), 99, {}, {});
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> scratch = flat, elsewhere = flat;
      for (int k = 0; k < noise; ++k)
        other.Sample(Scalar(), elsewhere);  // a neighbour in the batch
      ids.push_back(sampler.Sample(Scalar(), scratch).id);
    }
    return ids;
  };
  EXPECT_EQ(draw(5, 0), draw(5, 3));
  EXPECT_NE(draw(5, 0), draw(6, 0));
}

TEST(Sampler, DrawsTheSameTokenFromNearlyTheSameLogits) {
  // Another batch rounds logits otherwise; the draw must not jump because two of them swap places.
  SamplingParams params = AtTemperature(1);
  params.top_p = 0.95;
  params.top_k = 500;
  const std::vector<float> logits = NormalLogits(2000, 1, 11);
  Sampler a(params, 3, {}, {}), b(params, 3, {}, {});
  std::mt19937 rng(4);
  int equal = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<float> one = logits, two = logits;
    for (float& x : two) x += (rng() % 2 ? 1e-6f : -1e-6f);
    equal += a.Sample(Scalar(), one).id == b.Sample(Scalar(), two).id;
  }
  EXPECT_GE(equal, 498);
}

TEST(UniformAt, IsUniformAndUnrelatedBetweenSeeds) {
  constexpr int kCells = 100, kDraws = 100000;
  for (const bool by_seed : {false, true}) {
    std::map<int32_t, int> counts;
    for (uint64_t i = 0; i < kDraws; ++i) {
      const double u = by_seed ? UniformAt(i, 0) : UniformAt(42, i);
      ASSERT_TRUE(u >= 0 && u < 1);
      ++counts[static_cast<int32_t>(u * kCells)];
    }
    EXPECT_LT(ChiSquare(counts, std::vector<double>(kCells, 1. / kCells), kDraws),
              99 + 5 * std::sqrt(198.));
  }
  EXPECT_NE(UniformAt(1, 1), UniformAt(1 + 0x9e3779b97f4a7c15, 0)) << "streams are shifted copies";
  EXPECT_NE(RequestSeed(0, 1), RequestSeed(0, 2));
  EXPECT_NE(RequestSeed(0, 1), RequestSeed(1, 1));
}

}  // namespace
}  // namespace pinion
