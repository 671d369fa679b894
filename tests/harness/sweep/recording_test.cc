#include "harness/sweep/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "engine/base/file.h"
#include "harness/store/store.h"
#include "harness/sweep/state.h"

namespace pinion::harness {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

class RecordingTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = std::filesystem::temp_directory_path() /
                            ("pinion_recording_test_" + std::to_string(getpid()));
};

TEST_F(RecordingTest, BadFilesAreNamed) {
  const auto error = [&](const char* text, const char* column) {
    EXPECT_TRUE(WriteFile(path_, text));
    return ReadRecording(path_, column).error().message;
  };
  EXPECT_THAT(error("t,speed\n1,2\n", "pace"), HasSubstr("no column 'pace'; it has t, speed"));
  EXPECT_THAT(error("t,speed\n1,2\n2,fast\n", "speed"), HasSubstr("line 3"));
  EXPECT_THAT(error("t,speed\n1,2\n2,3x\n", "speed"), HasSubstr("not '3x'"));
  EXPECT_THAT(error("t,speed\n1,2\n", "speed"), HasSubstr("1 rows"));
  // A metric of which less is better is inverted.
  ASSERT_TRUE(WriteFile(path_, "ttft_s\r\n0.5\r\n0.25\r\n"));
  const auto recording = ReadRecording(path_, "ttft_s");
  ASSERT_TRUE(recording);
  EXPECT_NEAR(recording->log_speeds[1], std::log(4), 1e-12);
}

// Every candidate's trial of a round; 0 tokens/s: it failed.
struct Planned {
  int candidate, copy, round;
  double tokens_per_s;
};

void PutSweep(const std::string& path, const std::vector<Planned>& trials) {
  auto store = Store::Create(path);
  ASSERT_TRUE(store) << store.error().message;
  SweepMeta meta;
  meta.definition.objectives = {Objective::kThroughput};
  meta.machine = meta.budget = meta.model_facts = Json::MakeObject();
  ASSERT_TRUE(WriteMeta(**store, meta));
  std::vector<CandidateRow> rows(3);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].id = static_cast<int>(i);
    rows[i].label = std::string(1, static_cast<char>('a' + i));
    rows[i].is_baseline = i == 0;
  }
  ASSERT_TRUE((*store)->PutCandidates(rows));
  for (const Planned& one : trials) {
    TrialRow trial;
    trial.candidate = one.candidate;
    trial.copy = one.copy;
    trial.round = one.round;
    trial.ok = one.tokens_per_s > 0;
    trial.seconds = one.round;
    if (trial.ok) trial.samples = {{"output_tokens_per_s", 0, one.tokens_per_s}};
    ASSERT_TRUE((*store)->PutTrial(trial, {}));
  }
}

// In the last two rounds the defaults fail, in the first two candidate b.
TEST_F(RecordingTest, SweepKeepsRoundsWithTheBaselineAndCandidatesThatRan) {
  PutSweep(path_, {{0, 0, 1, 100},
                   {0, 1, 1, 110},
                   {1, 0, 1, 0},
                   {2, 0, 1, 200},
                   {0, 0, 2, 100},
                   {0, 1, 2, 90},
                   {1, 0, 2, 0},
                   {2, 0, 2, 300},
                   {0, 0, 3, 0},
                   {0, 1, 3, 0},
                   {2, 0, 3, 400}});
  const auto recorded = ReadRecordedSweep(path_, std::nullopt);
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->contestants.size(), 2u);
  EXPECT_EQ(recorded->contestants[0].name, "a") << "the baseline stays, whatever became of it";
  EXPECT_EQ(recorded->contestants[1].name, "c");
  EXPECT_THAT(recorded->contestants[1].log_ratios,
              ElementsAre(DoubleNear(std::log(2), 1e-12), DoubleNear(std::log(3), 1e-12)));
  EXPECT_THAT(recorded->contestants[1].seconds, ElementsAre(1, 2, 3));
  ASSERT_EQ(recorded->rounds.size(), 2u) << "a round without the baseline compares nothing";
  EXPECT_DOUBLE_EQ(recorded->rounds[1].baseline_again, std::log(90));
  EXPECT_DOUBLE_EQ(recorded->rounds[1].scores.at(1), std::log(300));
}

TEST_F(RecordingTest, SweepOfTheDefaultsAloneIsRefused) {
  PutSweep(path_, {{0, 0, 1, 100}, {0, 1, 1, 110}});
  const auto recorded = ReadRecordedSweep(path_, std::nullopt);
  ASSERT_FALSE(recorded);
  EXPECT_THAT(recorded.error().message,
              HasSubstr("holds 1 whole round of 1 candidate with throughput"));
}

}  // namespace
}  // namespace pinion::harness
