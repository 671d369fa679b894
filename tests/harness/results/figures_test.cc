#include "harness/results/figures.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

TEST(Figures, HaveNoIntervalIfThereIsNone) {
  EXPECT_EQ(FormatChangeInterval({4, 1.1, 0, std::nullopt}), "no interval (n = 4)");
  EXPECT_EQ(FormatChangeInterval({6, 1.1, 0, Interval{1.05, 1.12, 0.96}}), "+5.0 to +12.0 %");
}

TEST(Figures, KeepThreeDigitsInAUnitThatFits) {
  EXPECT_EQ(FormatFigure("s", 0.02134), "21.3 ms");
  EXPECT_EQ(FormatFigure("s", 0.0000141), "14.1 µs");
  EXPECT_EQ(FormatChange(158.3), "158 times");
  EXPECT_EQ(FormatFigure("s", 1.5), "1.50 s");
  EXPECT_EQ(FormatFigure("tokens/s", 1234.5), "1234 tokens/s");
  EXPECT_EQ(FormatFigure("tokens/s", 0), "0 tokens/s");
  EXPECT_EQ(FormatRange("s", 0.0213, 0.0226), "21.3 to 22.6 ms");
  EXPECT_EQ(FormatRange("s", 0.95, 1.5), "950 ms to 1.50 s");
  EXPECT_EQ(FormatRange("load", 2.5, 4), "2.50 to 4.00");
  EXPECT_EQ(FormatRange("price", 0.5, 120), "0.500 to 120");
  EXPECT_EQ(FormatSeconds(500), "8 min 20 s");
  EXPECT_EQ(FormatFigure("tokens/s", 9876), "9876 tokens/s");
  EXPECT_EQ(FormatRange("tokens/s", 91796, 1280550.4), "91,796 to 1,280,550 tokens/s");
}

TEST(Figures, ShowNoMoreDigitsThanTheirIntervalSupports) {
  const Estimate wide{13, 1.893, 0, Interval{1.523, 1.992, 0.97}};
  EXPECT_EQ(FormatChange(wide), "+89 %");
  EXPECT_EQ(FormatChangeInterval(wide), "+52 to +99 %");
  EXPECT_EQ(FormatGain(wide), "89 % [52, 99]");
  EXPECT_EQ(FormatGain({13, 1.042, 0, Interval{1.031, 1.055, 0.97}}), "4.2 % [3.1, 5.5]");
  EXPECT_EQ(FormatGain({4, 1.042, 0, std::nullopt}), "4.2 %");
  EXPECT_EQ(FormatChangeInterval({13, 9, 0, Interval{5, 21.2, 0.97}}), "+400 % to 21.2 times");
}

}  // namespace
}  // namespace pinion::harness
