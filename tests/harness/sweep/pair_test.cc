#include "harness/sweep/pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "harness/sweep/recording.h"
#include "tests/test_data.h"

namespace pinion::harness {
namespace {

using Kind = PairVerdict::Kind;

Definition Throughput() {
  Definition definition;
  definition.objectives = {Objective::kThroughput};
  return definition;
}

TrialRow TrialOf(int candidate, int copy, int round, double tokens_per_s) {
  TrialRow trial;
  trial.candidate = candidate;
  trial.copy = copy;
  trial.round = round;
  trial.ok = true;
  trial.samples = {{"output_tokens_per_s", 0, tokens_per_s}};
  return trial;
}

PairVerdict Judged(const std::vector<TrialRow>& trials) {
  return JudgePair(trials, Objective::kThroughput, Throughput());
}

// Rounds whose three trials take consecutive rows of a recording, in turns.
std::vector<TrialRow> Replayed(const Recording& recording, size_t offset, int rounds,
                               double speed_of_b) {
  std::vector<TrialRow> trials;
  const auto next = [&] {
    return std::exp(recording.log_speeds[offset++ % recording.log_speeds.size()]);
  };
  for (int round = 1; round <= rounds; ++round)
    for (int turn = 0; turn < 3; ++turn) {
      const int who = (turn + round) % 3;  // A, A again, B
      trials.push_back(TrialOf(who / 2, who % 2, round, next() * (who == 2 ? speed_of_b : 1)));
    }
  return trials;
}

// 10 minutes are 16 rounds of trials of 12 s.
int Worse(const char* file, const char* column, double speed_of_b) {
  const auto recording = ReadRecording(tests::TestData() + "/" + file, column);
  EXPECT_TRUE(recording) << recording.error().message;
  int worse = 0;
  for (size_t repetition = 0; repetition < 20; ++repetition) {
    const size_t offset = repetition * recording->log_speeds.size() / 20;
    const Kind kind = Judged(Replayed(*recording, offset, 16, speed_of_b)).kind;
    EXPECT_NE(kind, Kind::kBetter);
    worse += kind == Kind::kWorse ? 1 : 0;
  }
  return worse;
}

TEST(JudgePair, TellsBuildsApartThatDifferByFivePercentAndNoEqualOnes) {
  for (const char* column : {"memory_bytes_per_s", "fma_flops"}) {
    EXPECT_EQ(Worse("noise/quiet.csv", column, 0.95), 20) << column;
    EXPECT_EQ(Worse("noise/quiet.csv", column, 1), 0) << column;
  }
}

// Shares of replays in which the second, so fast, is called worse. The recording is short, so that
// they overlap.
double WorseShare(const std::string& file, const char* column, int rounds, double speed_of_b) {
  constexpr size_t kReplays = 240;
  const auto recording = ReadRecording(tests::TestData() + "/noise/" + file, column);
  EXPECT_TRUE(recording) << recording.error().message;
  int worse = 0;
  for (size_t replay = 0; replay < kReplays; ++replay) {
    const size_t offset = replay * recording->log_speeds.size() / kReplays;
    worse += Judged(Replayed(*recording, offset, rounds, speed_of_b)).kind == Kind::kWorse ? 1 : 0;
  }
  return static_cast<double>(worse) / kReplays;
}

// Run it by itself to read the rates.
TEST(JudgePair, InNoiseItFindsMoreWithTimeAndCallsAtMostATwentiethOfEqualBuildsWorse) {
  const struct {
    const char *file, *column;
    double least;  // of five percent worse ones in 32 rounds
  } series[] = {{"disturbed.csv", "memory_bytes_per_s", 0.85},
                {"disturbed.csv", "fma_flops", 0.85},
                {"held_out/opt-125m-quiet.csv", "batch_tokens_per_s", 0.85},
                {"held_out/opt-125m-quiet.csv", "loop_tokens_per_s", 0.42},
                {"held_out/opt-125m-quiet.csv", "inverse_latency", 0.42}};
  for (const auto& [file, column, least] : series)
    for (const int rounds : {16, 32}) {
      const double found = WorseShare(file, column, rounds, 0.95);
      const double equal = WorseShare(file, column, rounds, 1);
      std::printf(
          "%-28s %-20s %d rounds: 5 %% worse found in %.1f %%, equal called worse in %.1f %%\n",
          file, column, rounds, 100 * found, 100 * equal);
      EXPECT_LE(equal, 0.05) << file << " " << column << " " << rounds;
      EXPECT_GE(found, rounds == 32 ? least : 0) << file << " " << column;
    }
}

TEST(JudgePair, ComparesWithTheMeanOfTheBaselinesTwoTrials) {
  std::vector<TrialRow> trials;
  for (int round = 1; round <= 6; ++round) {
    trials.push_back(TrialOf(0, 0, round, 100));
    trials.push_back(TrialOf(0, 1, round, 121));
    trials.push_back(TrialOf(1, 0, round, 110));
  }
  EXPECT_NEAR(Judged(trials).ratio.median, 1, 1e-12);
  EXPECT_EQ(Judged(trials).kind, Kind::kNoDifference);
}

TEST(JudgePair, ADifferenceMustExceedTheFloor) {
  std::vector<TrialRow> trials;
  for (int round = 1; round <= 8; ++round) {
    // A differs from itself by 12 % in either direction, in turn.
    trials.push_back(TrialOf(0, 0, round, round % 2 ? 100 : 112));
    trials.push_back(TrialOf(0, 1, round, round % 2 ? 112 : 100));
    trials.push_back(TrialOf(1, 0, round, 103));
  }
  const PairVerdict verdict = Judged(trials);
  EXPECT_LT(verdict.ratio.interval->high, 1);
  EXPECT_LT(verdict.ratio.median, 0.98);
  EXPECT_GT(verdict.floor, 0.03);
  EXPECT_EQ(verdict.kind, Kind::kNoDifference);
}

TEST(JudgePair, AFloorAboveAllOfTheSpeedStillLetsABuildBeWorse) {
  std::vector<TrialRow> trials;
  for (int round = 1; round <= 8; ++round) {
    trials.push_back(TrialOf(0, 0, round, round % 2 ? 100 : 250));
    trials.push_back(TrialOf(0, 1, round, round % 2 ? 250 : 100));
    trials.push_back(TrialOf(1, 0, round, 20));
  }
  const PairVerdict verdict = Judged(trials);
  EXPECT_GT(verdict.floor, 1);
  EXPECT_EQ(verdict.kind, Kind::kWorse);
}

TEST(JudgePair, ASmallDifferenceIsNoneAndALargeOneHasADirection) {
  for (const auto& [speed, kind] :
       {std::pair(99.0, Kind::kNoDifference), std::pair(101.0, Kind::kNoDifference),
        std::pair(97.0, Kind::kWorse), std::pair(103.0, Kind::kBetter)}) {
    std::vector<TrialRow> trials;
    for (int round = 1; round <= 6; ++round)
      for (const auto& [candidate, copy] : {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0)})
        trials.push_back(TrialOf(candidate, copy, round, candidate ? speed : 100));
    EXPECT_EQ(Judged(trials).kind, kind) << speed;
  }
}

// What the report says of it.
TEST(JudgePair, TheReportsVerdictIsThePairs) {
  for (const auto& [speed, outcome, recommended] :
       {std::tuple(90.0, Outcome::kBaselineBest, 0), std::tuple(100.0, Outcome::kNoDifference, 0),
        std::tuple(110.0, Outcome::kWinner, 1)}) {
    std::vector<TrialRow> trials;
    for (int round = 1; round <= 6; ++round)
      for (const auto& [candidate, copy] : {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0)})
        trials.push_back(TrialOf(candidate, copy, round, candidate ? speed : 100));
    const PairVerdict pair = Judged(trials);
    const Verdict verdict = AsVerdict(pair);
    EXPECT_EQ(verdict.outcome, outcome) << speed;
    EXPECT_EQ(verdict.recommended, recommended) << speed;
    EXPECT_EQ(verdict.best_ratio.median, pair.ratio.median);
    EXPECT_EQ(verdict.best_ratio.n, 6u);
    EXPECT_EQ(verdict.objective, "throughput");
    EXPECT_EQ(verdict.floor, pair.floor);
    EXPECT_FALSE(verdict.confirmed);
  }
}

TEST(JudgePair, FiveRoundsAreTooFew) {
  std::vector<TrialRow> trials;
  for (int round = 1; round <= 5; ++round)
    for (const auto& [candidate, copy] : {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0)})
      trials.push_back(TrialOf(candidate, copy, round, candidate ? 50 : 100));
  const PairVerdict verdict = Judged(trials);
  EXPECT_EQ(verdict.kind, Kind::kTooFewRounds);
  EXPECT_TRUE(ToJson(verdict).Find("ratio")->Find("low")->is_null());
  EXPECT_THAT(Render(verdict, "A", "B"), testing::HasSubstr("raise --budget"));
}

}  // namespace
}  // namespace pinion::harness
