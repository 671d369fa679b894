// A server that ends, of which a shell script takes the place.

#include "harness/profile/keep_running.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

namespace fs = std::filesystem;

class KeepRunningTest : public testing::Test {
 protected:
  KeepRunningTest() {
    signal(SIGHUP, SIG_DFL);  // nohup ignores it, and a shell cannot trap what it began by ignoring
    folder_ = fs::path(testing::TempDir()) / StrCat("pinion-keep-", getpid(), "-", Name());
    fs::create_directories(folder_);
  }
  ~KeepRunningTest() override { fs::remove_all(folder_); }

  // In the script, $1 is the folder and $runs tells which start this is, from 1.
  Result<int> Keep(const std::string& script, const std::function<bool()>& is_ready = {}) {
    KeepRunningOptions options;
    options.pauses = RestartPolicy(std::numeric_limits<int>::max(), 600, 0);
    options.look_s = 0.005;
    return KeepRunning({{{"ADDED", "yes"}},
                        {"/bin/sh", "-c", "cd \"$1\"; echo >>runs; runs=$(wc -l <runs); " + script,
                         "sh", folder_}},
                       options, [&](pid_t server) {
                         asked_ = server;
                         return is_ready ? is_ready() : fs::exists(folder_ / "ready");
                       });
  }
  size_t runs() const {
    const auto text = ReadFile((folder_ / "runs").string(), 1000);
    return text ? text->size() : 0;
  }
  // The answer of a server that waits for it ("until test -e seen") before it goes on.
  bool Seen() const {
    if (!fs::exists(folder_ / "ready")) return false;
    std::ofstream(folder_ / "seen").flush();
    return true;
  }
  static constexpr char kGetsReady[] =
      "rm -f seen; : >ready; until test -e seen; do :; done; rm ready";

  fs::path folder_;
  pid_t asked_ = -1;  // whose answer was asked for last

 private:
  static std::string Name() {
    return testing::UnitTest::GetInstance()->current_test_info()->name();
  }
};

TEST_F(KeepRunningTest, AServerThatCrashesOrFailsIsStartedAgain) {
  const auto code = Keep("case $runs in 1) kill -9 $$;; 2) exit 1;; 3) exit 139;; esac");
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(runs(), 4u);
}

TEST_F(KeepRunningTest, AParentThatIgnoresTheEndsOfItsChildrenHidesNone) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const auto code = Keep("case $runs in 1) kill -9 $$;; esac");
  ::signal(SIGCHLD, before);
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(runs(), 2u);
}

TEST_F(KeepRunningTest, AnEndInOrderAndBadUsageAreTheEnd) {
  EXPECT_EQ(*Keep("exit 0"), 0);
  EXPECT_EQ(*Keep("exit 2"), 2);
  EXPECT_EQ(runs(), 2u);
}

// Before its start any server's, which would be in its way; then its own, since another may have
// come first.
TEST_F(KeepRunningTest, AsksForItsOwnServersAnswer) {
  std::vector<pid_t> asked;
  const auto note = [&] {
    asked.push_back(asked_);
    std::ofstream(folder_ / "seen").flush();
    return false;
  };
  ASSERT_EQ(*Keep("until test -e seen2; do test -e seen && echo $$ >seen2; done; sleep 0.1", note),
            0);
  ASSERT_GE(asked.size(), 2u);
  EXPECT_EQ(asked.front(), 0);
  EXPECT_EQ(StrCat(asked.back(), "\n"), ReadFile((folder_ / "seen2").string(), 100).value());
}

TEST_F(KeepRunningTest, GetsItsEnvironment) {
  EXPECT_EQ(*Keep("test \"$ADDED\" = yes"), 0);
  EXPECT_EQ(runs(), 1u);
}

TEST_F(KeepRunningTest, OneThatIsNeverReadyIsGivenUpInOneSentence) {
  const auto code = Keep("exit 3");
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().code, ErrorCode::kFailed);
  EXPECT_NE(code.error().message.find("not ready 5 times in a row"), std::string::npos);
  EXPECT_NE(code.error().message.find("ended with exit code 3"), std::string::npos);
  EXPECT_EQ(runs(), 5u);
}

TEST_F(KeepRunningTest, AProgramThatIsNotThereIsGivenUp) {
  const auto code = KeepRunning({{}, {"/no/such/server"}}, {.pauses = RestartPolicy(100, 600, 0)},
                                [](pid_t) { return false; });
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message.find("/no/such/server"), std::string::npos);
}

TEST_F(KeepRunningTest, OnlyFailuresInARowCount) {
  const auto code =
      Keep(StrCat("case $runs in 5|12) ", kGetsReady, "; exit 1;; 20) exit 0;; esac; exit 1"),
           [&] { return Seen(); });
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(runs(), 20u);
}

TEST_F(KeepRunningTest, OneThatHasWorkedIsGivenUpLater) {
  const auto code =
      Keep(StrCat("test $runs -gt 1 || { ", kGetsReady, "; }; exit 1"), [&] { return Seen(); });
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message.find("not ready 60 times"), std::string::npos);
  EXPECT_EQ(runs(), 61u);
}

TEST_F(KeepRunningTest, IsNotStartedBesideAnotherThatAnswersAtItsAddress) {
  const auto code = Keep("exit 0", [] { return true; });
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message.find("another one answers"), std::string::npos);
  EXPECT_EQ(runs(), 0u);
}

// The signals come while they are waited for: this process has one thread.
TEST_F(KeepRunningTest, PassesOnSignalsAndWaitsForTheEnd) {
  for (const int number : {SIGTERM, SIGINT}) {
    const std::string name = number == SIGTERM ? "TERM" : "INT";
    bool sent = false;
    const auto code = Keep(StrCat("trap 'touch asked-", name, "; exit 0' ", name,
                                  "; : >ready; while :; do sleep 0.01; done"),
                           [&] {
                             if (sent || !fs::exists(folder_ / "ready")) return false;
                             return sent = kill(getpid(), number) == 0;
                           });
    ASSERT_TRUE(code) << code.error().message;
    EXPECT_EQ(*code, 0);
    EXPECT_TRUE(fs::exists(folder_ / StrCat("asked-", name)));
    fs::remove(folder_ / "ready");
  }
  EXPECT_EQ(runs(), 2u);
}

TEST_F(KeepRunningTest, AHangupIsTheServersAndNoEnd) {
  bool sent = false;
  const auto code =
      Keep("trap 'touch hung-up; exit 0' HUP; : >ready; while :; do sleep 0.01; done", [&] {
        if (sent || !fs::exists(folder_ / "ready")) return false;
        return sent = kill(getpid(), SIGHUP) == 0;
      });
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "hung-up"));
  EXPECT_EQ(runs(), 1u);
}

TEST_F(KeepRunningTest, AServerThatFailsToEndInOrderIsNotStartedAgain) {
  bool sent = false;
  const auto code = Keep(
      "test $runs = 1 || exit 0; trap 'exit 7' TERM; : >ready; while :; do sleep 0.01; done", [&] {
        if (sent || !fs::exists(folder_ / "ready")) return false;
        return sent = kill(getpid(), SIGTERM) == 0;
      });
  EXPECT_EQ(*code, 7);
  EXPECT_EQ(runs(), 1u);
}

TEST_F(KeepRunningTest, EndsDuringAPauseIfItIsAsked) {
  const auto code = KeepRunning({{}, {"/no/such/server"}}, {.pauses = RestartPolicy(9, 600, 3600)},
                                [](pid_t) { return kill(getpid(), SIGTERM) != 0; });
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 0);
}

TEST_F(KeepRunningTest, ProcessesThatAServerLeavesBehindEndWithIt) {
  const auto code = Keep("sleep 1000 & echo $! >left; exit 0");
  EXPECT_EQ(*code, 0);
  const auto left = ReadFile((folder_ / "left").string(), 100);
  ASSERT_TRUE(left);
  const auto pid = static_cast<pid_t>(std::stol(*left));
  // The process that adopts it has to reap it.
  const auto is_gone = [&] {
    const auto state = ReadFile(StrCat("/proc/", pid, "/stat"), 1000);
    return !state || state->find(") Z ") != std::string::npos;
  };
  constexpr int kPatienceMs = 20'000;  // only bounds a failure
  for (int ms = 0; !is_gone() && ms < kPatienceMs; ++ms) usleep(1000);
  EXPECT_TRUE(is_gone());
  if (!is_gone()) kill(pid, SIGKILL);
}

}  // namespace
}  // namespace pinion::harness
