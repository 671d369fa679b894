// The children here are shell scripts that behave as a trial would, well or badly.

#include "harness/trial/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/file.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

class RunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("pinion_runner_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteChild(const std::string& script) {
    process_.binary = folder_ / "child";
    process_.log_path = folder_ / "child.log";
    EXPECT_TRUE(
        WriteFile(process_.binary, StrCat("#!/bin/sh\ncd ", folder_.string(), "\n", script)));
    chmod(process_.binary.c_str(), 0755);
  }

  std::array<TrialOutcome, 2> RunPair() {
    PairRequest request;
    request.waves = 4;
    request.sides[1].log = folder_ / "second.log";
    auto outcomes = RunPairProcess(request, process_);
    EXPECT_TRUE(outcomes) << outcomes.error().message;
    return outcomes ? *outcomes : std::array<TrialOutcome, 2>();
  }

  TrialOutcome Run(const std::string& script, double timeout_s = 30) {
    WriteChild(script);
    process_.timeout_s = timeout_s;
    TrialRequest request;
    request.seed = 77;
    auto outcome = RunTrialProcess(request, process_);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : TrialOutcome();
  }

  std::filesystem::path folder_;
  TrialProcess process_;
};

constexpr char kGoodResult[] =
    R"(echo '{"samples":[{"metric":"ttft_s","concurrency":1,"value":0.5}],)"
    R"("suspect":[],"info":{}}')";

TEST_F(RunnerTest, ReadsTheResultAndGivesTheRequest) {
  const TrialOutcome outcome =
      Run(std::string("grep -q '\"seed\":77' || exit 3\necho noise >&2\n") + kGoodResult);
  EXPECT_TRUE(outcome.ok) << outcome.reason;
  ASSERT_EQ(outcome.result.samples.size(), 1u);
  EXPECT_EQ(outcome.result.samples[0].value, 0.5);
}

TEST_F(RunnerTest, AnErrorIsARowWithItsSentenceAndItsLog) {
  const TrialOutcome outcome = Run("echo first >&2; echo 'pinion: no such model' >&2; exit 1");
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.reason, "no such model");
  EXPECT_EQ(outcome.log_tail, "first\npinion: no such model");
}

TEST_F(RunnerTest, LackOfTimeIsDistinguishedFromOtherFailures) {
  const TrialOutcome outcome =
      Run(R"(echo '{"samples":[],"suspect":[],"info":{},"too_slow":"too slow"}')");
  EXPECT_TRUE(outcome.out_of_time);
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.reason, "too slow");
  EXPECT_FALSE(Run("exit 1").out_of_time);
}

TEST_F(RunnerTest, ACrashNamesItsSignal) {
  EXPECT_THAT(Run("kill -SEGV $$").reason, HasSubstr("signal 11"));
  EXPECT_THAT(Run("kill -KILL $$").reason, HasSubstr("lack of memory"));
}

// Stands still until there is a line in the file, and then is past every limit.
class LateOnceWritten final : public Clock {
 public:
  explicit LateOnceWritten(std::string path) : path_(std::move(path)) {}
  int64_t NowNs() const override {
    return ReadFile(path_).value_or("").find('\n') == std::string::npos ? 0 : 1'000'000'000'000;
  }
  void SleepNs(int64_t) const override {}

 private:
  std::string path_;
};

TEST_F(RunnerTest, AHangEndsAtItsLimitAndTakesItsChildrenAlong) {
  const std::string pid_file = folder_ / "pid";
  const LateOnceWritten clock(pid_file);
  process_.clock = &clock;
  const TrialOutcome outcome = Run("sleep 300 & echo $! > " + pid_file + "; wait", 20);
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.reason, "hung: killed after 20 s");
  const pid_t grandchild = std::stoi(*ReadFile(pid_file));
  // The minute only bounds a failure.
  for (int i = 0; i < 6000 && kill(grandchild, 0) == 0; ++i) usleep(10'000);
  // Gone, or a zombie that was not reaped yet.
  const std::string stat = ReadFile("/proc/" + std::to_string(grandchild) + "/stat").value_or("Z");
  EXPECT_THAT(stat, HasSubstr("Z"));
}

TEST_F(RunnerTest, GarbageInsteadOfAResultIsAFailure) {
  EXPECT_THAT(Run("echo '{\"samples\":'").reason, HasSubstr("cannot be read"));
  EXPECT_FALSE(Run("true").ok);
}

TEST_F(RunnerTest, AnInterruptionKillsTheChildAndLeavesNoResult) {
  int asked = 0;
  process_.interrupted = [&] { return ++asked > 0; };
  const TrialOutcome outcome = Run("sleep 300");
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(asked, 1) << "it waited on";
}

TEST_F(RunnerTest, MissingBinaryIsAnErrorNotAFailedTrial) {
  process_.binary = folder_ / "nothing";
  process_.log_path = folder_ / "child.log";
  EXPECT_FALSE(RunTrialProcess({}, process_));
}

TEST_F(RunnerTest, ASideOfAPairThatFailsKeepsItsReasonAndItsOwnLog) {
  WriteChild(R"(grep -q '"waves":4' || exit 3
echo of the first >&2
echo of the second > second.log
echo '{"sides":[{"samples":[],"suspect":[],"info":{}},{"error":"the server ended"}]}')");
  const auto outcomes = RunPair();
  EXPECT_TRUE(outcomes[0].ok) << outcomes[0].reason;
  EXPECT_EQ(outcomes[0].log_tail, "");
  EXPECT_FALSE(outcomes[1].ok);
  EXPECT_EQ(outcomes[1].reason, "the server ended");
  EXPECT_EQ(outcomes[1].log_tail, "of the second");
}

TEST_F(RunnerTest, AChildThatDiesIsTheEndOfBothSides) {
  WriteChild("echo 'pinion: no such model' >&2; exit 1");
  for (const TrialOutcome& outcome : RunPair()) {
    EXPECT_FALSE(outcome.ok);
    EXPECT_EQ(outcome.reason, "no such model");
  }
  WriteChild("echo '{\"sides\":[]}'");
  for (const TrialOutcome& outcome : RunPair())
    EXPECT_THAT(outcome.reason, HasSubstr("cannot be read"));
}

TEST_F(RunnerTest, LogTailKeepsTheLastLines) {
  ASSERT_TRUE(WriteFile(folder_ / "log", "a\nb\nc\nd\n"));
  EXPECT_EQ(LogTail(folder_ / "log", 2), "c\nd");
  EXPECT_EQ(LogTail(folder_ / "log", 9), "a\nb\nc\nd");
  EXPECT_EQ(LogTail(folder_ / "none"), "");
}

TEST_F(RunnerTest, LogTailOfAnEngineThatWritesWithoutEndIsShort) {
  std::string log(3 << 20, 'x');
  log += "\n12:00:00.000 E out of memory\n";
  ASSERT_TRUE(WriteFile(folder_ / "log", log));
  EXPECT_EQ(LogTail(folder_ / "log", 1), "12:00:00.000 E out of memory");
  EXPECT_LE(LogTail(folder_ / "log").size(), size_t{16} << 10);
  EXPECT_THAT(LogTail(folder_ / "log"), HasSubstr("x\n12:00:00.000 E out of memory"));
  // Beyond what ReadFile takes: a file of holes.
  std::filesystem::resize_file(folder_ / "log", uint64_t{3} << 30);
  EXPECT_EQ(LogTail(folder_ / "log").size(), size_t{16} << 10);
}

}  // namespace
}  // namespace pinion::harness
