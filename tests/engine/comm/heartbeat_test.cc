#include "engine/comm/heartbeat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace pinion {
namespace {

constexpr int64_t kBeat = SilenceWatch::kBeatNs, kLost = SilenceWatch::kLostNs;

// Asks every beat from `from_ns` on, while nothing is heard of process 2, and the others are heard
// every time; returns when it is lost.
int64_t LostAt(SilenceWatch& watch, int64_t from_ns) {
  for (int64_t now_ns = from_ns; now_ns < from_ns + 10 * kLost; now_ns += kBeat) {
    watch.Heard(1, now_ns);
    watch.Heard(3, now_ns);
    if (const auto lost = watch.Lost(now_ns)) {
      EXPECT_EQ(*lost, 2u);
      return now_ns;
    }
  }
  return -1;
}

TEST(SilenceWatch, FindsTheProcessThatIsSilentForTooLongAndNotSooner) {
  SilenceWatch watch({1, 2, 3}, 0);
  const int64_t lost_ns = LostAt(watch, 0);
  EXPECT_GT(lost_ns, kLost);
  EXPECT_LE(lost_ns, kLost + kBeat);
}

TEST(SilenceWatch, ASignOfLifeBeginsTheWaitAnew) {
  SilenceWatch watch({1, 2, 3}, 0);
  for (int64_t now_ns = 0; now_ns < kLost; now_ns += kBeat) {
    watch.Heard(1, now_ns);
    watch.Heard(3, now_ns);
    EXPECT_FALSE(watch.Lost(now_ns));
  }
  watch.Heard(2, kLost);
  EXPECT_GT(LostAt(watch, kLost), 2 * kLost);
}

TEST(SilenceWatch, AWatcherThatWasHeldUpJudgesNobody) {
  SilenceWatch watch({2}, 0);
  EXPECT_FALSE(watch.Lost(0));
  EXPECT_FALSE(watch.Lost(5 * kLost)) << "it has not listened since";
  EXPECT_GT(LostAt(watch, 5 * kLost), 6 * kLost) << "from then on it listens again";
}

// Each time for less than makes it begin anew, as on a host that has far more to do than cores.
TEST(SilenceWatch, AWatcherThatIsHeldUpAgainAndAgainWaitsForAsManyBeats) {
  SilenceWatch watch({2}, 0);
  int64_t beats = 0;
  for (int64_t now_ns = 0; !watch.Lost(now_ns) && beats < 100; now_ns += 3 * kBeat) ++beats;
  EXPECT_GT(beats, kLost / kBeat);
  EXPECT_LE(beats, kLost / kBeat + 2);
}

// Process 1 is heard with every call until it is lost.
class FakeSigns final : public LifeSigns {
 public:
  explicit FakeSigns(std::atomic<int>& sent) : sent_(sent) {}
  std::vector<size_t> watched() const override { return {1}; }
  void Send() override { ++sent_; }
  std::vector<size_t> Received() override { return {1}; }

 private:
  std::atomic<int>& sent_;
};

// A process that fails calls exit() and leaves the heartbeat to itself. The function that exit()
// calls first was registered last.
TEST(HeartbeatDeathTest, EndsWhenTheProcessCallsExit) {
  static std::atomic<int> sent{0};
  const auto fail = [] {
    std::atexit([] {
      const int before = sent;
      std::this_thread::sleep_for(std::chrono::nanoseconds(3 * kBeat));
      if (sent != before) _exit(3);
    });
    new Heartbeat(std::make_unique<FakeSigns>(sent), [](size_t) {});
    while (sent < 1) std::this_thread::yield();
    std::exit(5);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(5), "");
}

// Calls exit() on the heartbeat's thread, as its owner may if a process is lost; once the heartbeat
// is there, so that exit() finds it.
class ExitingSigns final : public LifeSigns {
 public:
  static inline std::atomic<bool> may_exit{false};

  std::vector<size_t> watched() const override { return {1}; }
  void Send() override {
    while (!may_exit) std::this_thread::yield();
    std::exit(5);
  }
  std::vector<size_t> Received() override { return {}; }
};

[[noreturn]] void WaitForExit() {
  ExitingSigns::may_exit = true;
  for (;;) pause();
}

// A thread cannot join itself, and must not be joinable when it is destroyed.
TEST(HeartbeatDeathTest, ItsOwnThreadMayCallExit) {
  const auto left_to_itself = [] {
    new Heartbeat(std::make_unique<ExitingSigns>(), [](size_t) {});
    WaitForExit();
  };
  const auto destroyed_by_exit = [] {
    static const Heartbeat heartbeat(std::make_unique<ExitingSigns>(), [](size_t) {});
    WaitForExit();
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(left_to_itself(), ::testing::ExitedWithCode(5), "");
  EXPECT_EXIT(destroyed_by_exit(), ::testing::ExitedWithCode(5), "");
}

TEST(Heartbeat, SendsUntilItEndsAndMissesNoProcessThatIsHeard) {
  std::atomic<int> sent{0};
  {
    const Heartbeat heartbeat(std::make_unique<FakeSigns>(sent), [](size_t) { ADD_FAILURE(); });
    while (sent < 2) std::this_thread::yield();
  }
  const int at_end = sent;
  std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kBeat));
  EXPECT_EQ(sent, at_end);
}

}  // namespace
}  // namespace pinion
