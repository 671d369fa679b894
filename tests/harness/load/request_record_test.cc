#include "harness/load/request_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace pinion::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kOriginNs = 987'654'321'012'345;  // no whole microsecond itself

std::vector<int64_t> TimesAfter(int64_t origin_ns, const std::vector<int64_t>& gaps_us) {
  std::vector<int64_t> times_ns;
  for (const int64_t gap_us : gaps_us) {
    origin_ns += gap_us * 1000;
    times_ns.push_back(origin_ns);
  }
  return times_ns;
}

TEST(TokenTimes, ComeBackExactly) {
  std::mt19937_64 random(18);
  std::vector<int64_t> gaps_us = {0, 1, 127, 128, 16'383, 16'384, 2'097'151, 2'097'152, 0};
  for (int bits = 0; bits < 40; ++bits)  // 12 days
    for (int i = 0; i < 20; ++i)
      gaps_us.push_back(static_cast<int64_t>(random() & ((uint64_t{1} << bits) - 1)));
  const std::vector<int64_t> times_ns = TimesAfter(kOriginNs, gaps_us);
  const auto read = UnpackTimes(PackTimes(times_ns, kOriginNs), kOriginNs);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, times_ns);
  EXPECT_THAT(PackTimes({}, kOriginNs), IsEmpty());
  EXPECT_THAT(*UnpackTimes("", kOriginNs), IsEmpty());
}

TEST(TokenTimes, RoundingErrorsDoNotAddUp) {
  std::vector<int64_t> times_ns;
  for (int64_t i = 0; i < 1000; ++i) times_ns.push_back(kOriginNs + i * 20'000'999);
  const auto read = UnpackTimes(PackTimes(times_ns, kOriginNs), kOriginNs);
  ASSERT_EQ(read->size(), times_ns.size());
  for (size_t i = 0; i < times_ns.size(); ++i) {
    EXPECT_LE((*read)[i], times_ns[i]);
    EXPECT_LT(times_ns[i] - (*read)[i], 1000);
  }
}

TEST(TokenTimes, TakeTwoBytesUpTo16MillisecondsAndThreeUpToTwoSeconds) {
  const auto bytes = [](int64_t gap_us) {
    return PackTimes(TimesAfter(0, std::vector<int64_t>(1000, gap_us)), 0).size();
  };
  EXPECT_EQ(bytes(0), 1000u);
  EXPECT_EQ(bytes(16'383), 2000u);
  EXPECT_EQ(bytes(20'000), 3000u);
  EXPECT_EQ(bytes(2'097'151), 3000u);
}

TEST(TokenTimes, DamageIsRefused) {
  const std::string packed = PackTimes(TimesAfter(0, {5, 20'000}), 0);
  EXPECT_THAT(*UnpackTimes(packed, 0), ElementsAre(5'000, 20'005'000));
  EXPECT_THAT(UnpackTimes(std::string_view(packed).substr(0, packed.size() - 1), 0).error().message,
              HasSubstr("break off after 1 tokens"));
  const std::string endless(64, '\xff'), longest = std::string(8, '\xff') + '\x7f';
  for (const std::string& damaged : {endless, longest, "\1" + longest, '\xff' + longest})
    EXPECT_THAT(UnpackTimes(damaged, 0).error().message, HasSubstr("more than 63 bits"));
  EXPECT_THAT(UnpackTimes("\1", std::numeric_limits<int64_t>::max()).error().message,
              HasSubstr("more than 63 bits"));
}

}  // namespace
}  // namespace pinion::harness
