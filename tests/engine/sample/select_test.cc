#include "engine/sample/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/engine/sample/draws.h"

namespace pinion {
namespace {

std::vector<Candidate> Sorted(const std::vector<float>& values) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < values.size(); ++i) all.push_back({values[i], static_cast<int32_t>(i)});
  std::sort(all.begin(), all.end(), Better);
  return all;
}

std::vector<int32_t> Ids(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& candidate : candidates) ids.push_back(candidate.id);
  return ids;
}

// Few distinct values make ties, many do not; sizes on both sides of the internal buffer.
std::vector<float> Values(std::mt19937& rng, size_t size) {
  const uint32_t distinct = rng() % 2 ? 7 : 1u << 30;
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(rng() % distinct);
  return values;
}

TEST(Best, AgreesWithSortingEverything) {
  std::mt19937 rng(20261120);
  for (const size_t size : {1, 2, 255, 256, 257, 300, 1000, 5000}) {
    for (const size_t k : {1, 2, 20, 255, 1000, 6000}) {
      std::vector<float> values = Values(rng, size);
      if (size > 2) values[size / 2] = -std::numeric_limits<float>::infinity();
      std::vector<Candidate> want = Sorted(values);
      if (want.size() > k) want.resize(k);
      EXPECT_EQ(Ids(Best(Scalar(), values, k)), Ids(want)) << "size " << size << ", k " << k;
    }
  }
}

TEST(Best, SurvivesRisingAndFallingValues) {  // the buffer fills at every step, or only once
  std::vector<float> rising(3000), falling(3000);
  for (size_t i = 0; i < rising.size(); ++i) {
    rising[i] = static_cast<float>(i);
    falling[i] = -static_cast<float>(i);
  }
  EXPECT_EQ(Ids(Best(Scalar(), rising, 3)), (std::vector<int32_t>{2999, 2998, 2997}));
  EXPECT_EQ(Ids(Best(Scalar(), falling, 3)), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Best, TakesMaskedValuesIfThereAreNoOthers) {
  std::vector<float> values(2000, -std::numeric_limits<float>::infinity());
  values[1500] = 1;
  values[1999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Ids(Best(Scalar(), values, 4)), (std::vector<int32_t>{1999, 1500, 0, 1}));
}

TEST(NucleusBorder, AgreesWithAddingUpInOrder) {
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> values = Values(rng, 1 + rng() % 200);
    // Whole numbers below 2^24, so that sums are exact in any order.
    for (float& value : values) value = std::fmod(value, 1024.f);
    double sum = 0;
    for (const float value : values) sum += value;
    const double mass = std::max(1., std::floor(sum * (rng() % 1001) / 1000));
    const std::vector<Candidate> sorted = Sorted(values);
    Candidate want = sorted.back();
    double passed = 0;
    for (const Candidate& candidate : sorted) {
      passed += candidate.value;
      if (passed < mass) continue;
      want = candidate;
      break;
    }
    std::vector<Candidate> shuffled = sorted;
    std::shuffle(shuffled.begin(), shuffled.end(), rng);
    const Candidate border = NucleusBorder(shuffled, mass);
    ASSERT_EQ(border.id, want.id) << "round " << round << ", mass " << mass << " of " << sum;
  }
}

TEST(NucleusBorder, KeepsAllIfTheMassExceedsTheTotal) {
  std::vector<Candidate> weights = {{2, 0}, {1, 1}, {1, 2}};
  EXPECT_EQ(NucleusBorder(weights, 100).id, 2);
}

}  // namespace
}  // namespace pinion
