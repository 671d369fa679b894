#include "engine/base/words.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(Words, OneIsSingular) {
  EXPECT_EQ(Counted(0, "key head"), "0 key heads");
  EXPECT_EQ(Counted(1, "key head"), "1 key head");
  EXPECT_EQ(Counted(2, "key head"), "2 key heads");
}

TEST(Words, DigitsAreInThreesFromTheRight) {
  EXPECT_EQ(Grouped(""), "");
  EXPECT_EQ(Grouped("123"), "123");
  EXPECT_EQ(Grouped("1234"), "1,234");
  EXPECT_EQ(Grouped("123456"), "123,456");
  EXPECT_EQ(Grouped("1234567"), "1,234,567");
  EXPECT_EQ(Grouped("-123"), "-123");
  EXPECT_EQ(Grouped("-1234"), "-1,234");
}

}  // namespace
}  // namespace pinion
