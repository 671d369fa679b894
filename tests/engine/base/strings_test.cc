#include "engine/base/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Strings, SplitKeepsEmptyParts) {
  EXPECT_THAT(Split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
  EXPECT_EQ(Join({"a", "", "b"}, "--"), "a----b");
  EXPECT_EQ(Join({}, ","), "");
}

TEST(Strings, TrimTakesBlanksFromBothEnds) {
  EXPECT_EQ(Trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(Trim(" \n "), "");
}

TEST(Strings, ParseIntTakesWholeNumbersOnly) {
  EXPECT_EQ(ParseInt("-12", "x").value(), -12);
  for (const char* bad : {"", "1.5", "12a", " 1", "+1", "9223372036854775808"}) {
    const auto parsed = ParseInt(bad, "block size");
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
    EXPECT_THAT(parsed.error().message, HasSubstr(StrCat("block size '", bad, "'")));
  }
}

TEST(Strings, ParseDoubleRefusesNanAndInfinity) {
  EXPECT_EQ(ParseDouble("2.5e-1", "x").value(), 0.25);
  for (const char* bad : {"", "nan", "inf", "1e999", "1,5", "0x10"})
    EXPECT_FALSE(ParseDouble(bad, "x")) << bad;
}

TEST(Strings, ParseBytesKnowsUnits) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  const auto bytes = [](const char* text) { return ParseBytes(text, kGib, "space").value(); };
  EXPECT_EQ(bytes("4"), 4 * kGib);
  EXPECT_EQ(bytes("0.5"), kGib / 2);
  EXPECT_EQ(bytes("512MiB"), kGib / 2);
  EXPECT_EQ(bytes(" 512 mb "), kGib / 2);
  EXPECT_EQ(bytes("1.5g"), 3 * kGib / 2);
  EXPECT_EQ(bytes("2T"), 2048 * kGib);
  EXPECT_EQ(bytes("100B"), 100u);
  EXPECT_EQ(bytes("0"), 0u);
  for (const char* bad : {"", "GiB", "-1", "1X", "1 GiBs", "1bb", "1e30", "nan"})
    EXPECT_FALSE(ParseBytes(bad, kGib, "space")) << bad;
  EXPECT_THAT(ParseBytes("3 gallons", kGib, "--kv-cache-space").error().message,
              AllOf(HasSubstr("--kv-cache-space '3 gallons'"), HasSubstr("MiB")));
}

TEST(Strings, ParseDurationKnowsUnits) {
  EXPECT_EQ(ParseDuration("10m", "budget").value(), 600);
  EXPECT_EQ(ParseDuration("90", "budget").value(), 90);
  EXPECT_EQ(ParseDuration("1.5 h", "budget").value(), 5400);
  EXPECT_EQ(ParseDuration("250ms", "budget").value(), 0.25);
  for (const char* bad : {"", "m", "5d", "-3s", "1e10", "9000h"})
    EXPECT_FALSE(ParseDuration(bad, "budget")) << bad;
  EXPECT_THAT(ParseDuration("ten", "--budget").error().message, HasSubstr("10m or 2h"));
}

TEST(CpuLists, KeepOrderAndSteps) {
  EXPECT_THAT(ParseCpuList("0-3,8,10-14:2").value(), ElementsAre(0, 1, 2, 3, 8, 10, 12, 14));
  EXPECT_THAT(ParseCpuList(" 5 , 1-1 ,1").value(), ElementsAre(5, 1, 1));
  EXPECT_THAT(ParseCpuList("0-5:3").value(), ElementsAre(0, 3));
}

TEST(CpuLists, RefuseTextThatIsNotAList) {
  for (const char* bad : {"", ",", "1,", "a", "3-1", "1-", "-1", "1:2", "1-4:0", "1-4:-1",
                          "1-4:", "1--4", "0-99999999", "4294967296", "1 2"}) {
    const auto parsed = ParseCpuList(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_THAT(parsed.error().message, HasSubstr("cpu list item '"));
  }
}

TEST(CpuLists, AreWrittenCompactly) {
  EXPECT_EQ(FormatCpuList({}), "");
  EXPECT_EQ(FormatCpuList({7}), "7");
  EXPECT_EQ(FormatCpuList({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(FormatCpuList({0, 2, 4, 6}), "0-6:2");
  EXPECT_EQ(FormatCpuList({0, 2}), "0,2");
  EXPECT_EQ(FormatCpuList({1, 3, 4, 5}), "1,3-5");
  EXPECT_EQ(FormatCpuList({5, 4, 3}), "5,4,3");
}

TEST(CpuLists, SurviveARoundTrip) {
  std::mt19937 rng(20261120);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<int> cpus(std::uniform_int_distribution<size_t>(1, 20)(rng));
    for (int& cpu : cpus) cpu = std::uniform_int_distribution<int>(0, 12)(rng);
    EXPECT_EQ(ParseCpuList(FormatCpuList(cpus)).value(), cpus) << FormatCpuList(cpus);
  }
}

TEST(Strings, FormatBytesPicksTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1,023 B");
  EXPECT_EQ(FormatBytes(uint64_t{1536} << 20), "1.5 GiB");
  EXPECT_EQ(FormatBytes(uint64_t{256} << 30), "256 GiB");
}

}  // namespace
}  // namespace pinion
