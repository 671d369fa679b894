// Rates of work that counts itself, on a clock that this work moves: the results are known exactly.

#include "harness/probe/rate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace pinion::harness {
namespace {

constexpr double kBytesPerNs = 32;

// Every thread has its own time, which is the work that it has done.
class WorkClock final : public Clock {
 public:
  int64_t NowNs() const override { return own_ns; }
  void SleepNs(int64_t ns) const override { own_ns += ns; }
  static inline thread_local int64_t own_ns = 0;
};

// The addresses that one thread was told to read.
thread_local std::vector<const std::byte*> read_at;

void ReadAtAKnownRate(const std::byte* src, size_t bytes) {
  read_at.push_back(src);
  WorkClock::own_ns += static_cast<int64_t>(static_cast<double>(bytes) / kBytesPerNs);
}

class Rates : public ::testing::Test {
 protected:
  static Team TeamOf(int threads) {
    Plan plan;
    plan.ranks.push_back({0, {}, {}, threads});
    auto team = Team::Start(plan);
    EXPECT_TRUE(team) << team.error().message;
    return std::move(*team);
  }

  const WorkClock clock_;
  const SamplingPlan sampling_{3, 0.001, &clock_};
};

TEST_F(Rates, AreWorkPerSecondOfAllThreadsTogether) {
  for (const int threads : {1, 3}) {
    Team team = TeamOf(threads);
    // Thread t does 1,000 (t + 1) a microsecond.
    const double rate = team.BestRate(sampling_, [](size_t thread) {
      WorkClock::own_ns += 1000;
      return 1000 * (thread + 1);
    });
    EXPECT_DOUBLE_EQ(rate, 1e9 * threads * (threads + 1) / 2) << threads;
  }
}

TEST_F(Rates, AreTheBestOfTheSamples) {
  Team team = TeamOf(1);
  int bites = 0;
  // A bite fills a sample: 10, 40 and 20 units in 1 ms each.
  const double rate = team.BestRate(sampling_, [&](size_t) {
    WorkClock::own_ns += 1'000'000;
    return std::vector<uint64_t>{10, 40, 20}[static_cast<size_t>(bites++)];
  });
  EXPECT_EQ(bites, 3);
  EXPECT_DOUBLE_EQ(rate, 40 / 1e-3);
}

TEST_F(Rates, OfAStreamAreTheBytesThatItWasToldToRead) {
  for (const int threads : {1, 2}) {
    Team team = TeamOf(threads);
    const auto arena = Arena::Allocate(team.size(), 4 << 20);
    ASSERT_TRUE(arena) << arena.error().message;
    std::vector<std::vector<size_t>> own;
    for (size_t i = 0; i < team.size(); ++i) own.push_back({i});
    const double rate = BestStreamRate(team, sampling_, *arena, own, ReadAtAKnownRate);
    EXPECT_DOUBLE_EQ(rate, kBytesPerNs * 1e9 * threads) << threads;
  }
}

// A stream that went over the same bytes again would measure a cache.
TEST_F(Rates, OfAStreamGoRoundItsPartsFromEndToEnd) {
  Team team = TeamOf(1);
  const auto arena = Arena::Allocate(2, 2 << 20);
  ASSERT_TRUE(arena) << arena.error().message;
  read_at.clear();  // this thread is the team
  BestStreamRate(team, sampling_, *arena, {{1, 0}}, ReadAtAKnownRate);
  constexpr size_t kBite = 1 << 20;
  const std::byte *first = arena->part(1), *second = arena->part(0);
  const std::vector<const std::byte*> round = {first, first + kBite, second, second + kBite};
  ASSERT_GT(read_at.size(), 2 * round.size());
  for (size_t i = 0; i < read_at.size(); ++i) EXPECT_EQ(read_at[i], round[i % 4]) << i;
}

}  // namespace
}  // namespace pinion::harness
