#include "harness/sweep/state.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

TEST(SettingsFrom, SkipsItemsThatAreNotPairsOfStrings) {
  const Json pairs = *Json::Parse(R"([["isa","avx2"],[1,2],["alone"],"no pair",["smt",null]])");
  const std::vector<Setting> settings = SettingsFrom(pairs);
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings[0].key, "isa");
  EXPECT_EQ(settings[0].value, "avx2");
}

}  // namespace
}  // namespace pinion::harness
