#include "engine/calibrate/shrinkage.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

// Tokens of two channels that are each 1 or -1; in `same` of them the channels are equal.
InputStatistics TwoChannels(size_t rows, size_t same) {
  InputStatistics inputs;
  inputs.k = 2;
  inputs.rows = rows;
  inputs.gram = AlignedFloats(4);
  const auto all = static_cast<float>(rows);
  inputs.gram.data()[0] = inputs.gram.data()[3] = all;
  inputs.gram.data()[2] = 2 * static_cast<float>(same) - all;
  inputs.pair_squares = 2 * static_cast<double>(rows);
  return inputs;
}

// How the second channel depends on the first, and nothing else changes.
float Shrunk(InputStatistics inputs) {
  ShrinkToDiagonal(inputs);
  EXPECT_EQ(inputs.gram.data()[0], 1);
  EXPECT_EQ(inputs.gram.data()[3], 1);
  return inputs.gram.data()[2];
}

// Of 32 tokens 24 make a mean product of 1/2, whose variance is (1 - 1/4) / 31: 3/31 of its square.
TEST(Shrinkage, TakesTheShareThatChanceExplains) {
  EXPECT_FLOAT_EQ(Shrunk(TwoChannels(32, 24)), 0.5f * 28 / 31);
  EXPECT_FLOAT_EQ(Shrunk(TwoChannels(32, 32)), 1);
  EXPECT_FLOAT_EQ(Shrunk(TwoChannels(32, 0)), -1);
}

// A mean product of 1/16 has a square below its variance.
TEST(Shrinkage, KeepsNothingThatMayBeChance) {
  EXPECT_EQ(Shrunk(TwoChannels(32, 17)), 0);
  EXPECT_EQ(Shrunk(TwoChannels(31, 31)), 0);  // too few tokens to know
}

TEST(Shrinkage, GoesTowardsTheDependenceInAllTokens) {
  InputStatistics all = TwoChannels(1000, 1000), few = TwoChannels(31, 0), none;
  ShrinkToDiagonal(all);
  ShrinkToAll(all, few);
  EXPECT_EQ(few.gram.data()[2], 1);
  ShrinkToAll(all, none);
  EXPECT_EQ(none.gram.data()[2], 1);
  // Halfway between 1/2 of 32 tokens and 1 of all lies a square of 1/4, of which chance explains
  // 3/31.
  InputStatistics some = TwoChannels(32, 24);
  ShrinkToAll(all, some);
  EXPECT_FLOAT_EQ(some.gram.data()[2], 0.5f * 28 / 31 + 1.0f * 3 / 31);
}

}  // namespace
}  // namespace pinion
