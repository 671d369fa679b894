// How the protocol uses budgets that are too small for a race and its confirmation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/stats/verdict.h"
#include "harness/sweep/assemble.h"
#include "harness/sweep/protocol.h"
#include "made_up_rows.h"

namespace pinion::harness {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Speeds {
  double throughput, latency;
};

// Trials of a second each, the first `slow` ones of four, of candidates with these speeds and this
// much noise; with `uneven` set every other one is longer by so much, and the rest shorter.
class MadeUp : public TrialSource {
 public:
  MadeUp(std::vector<Speeds> speeds, double noise, int slow = 0, double uneven = 0)
      : speeds_(std::move(speeds)), slow_(slow), uneven_(uneven), noise_(0, noise) {}
  Result<std::optional<TrialRow>> Run(const Slot& slot, int, const ProgressLine& line) override {
    EXPECT_TRUE(line.rounds == 0 || line.round <= line.rounds) << line.round << "/" << line.rounds;
    TrialRow trial;
    static_cast<Slot&>(trial) = slot;
    trial.ok = true;
    trial.seconds = (slow_-- > 0 ? 4 : 1) + uneven_;
    uneven_ = -uneven_;
    const Speeds& speed = speeds_[static_cast<size_t>(slot.candidate)];
    const double seconds = 1 / (speed.latency * std::exp(noise_(random_)));
    trial.samples = {{"output_tokens_per_s", 0, speed.throughput * std::exp(noise_(random_))},
                     {"ttft_s", 1, seconds},
                     {"tpot_s", 1, seconds}};
    return std::optional(std::move(trial));
  }
  const std::map<Slot, TrialRow>& Stored() const override { return nothing_; }
  size_t candidates() const { return speeds_.size(); }

 private:
  std::vector<Speeds> speeds_;
  int slow_;
  double uneven_;
  std::map<Slot, TrialRow> nothing_;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> noise_;
};

class Noting : public SilentProgress {
 public:
  void Note(const std::string& text) override { notes.push_back(text); }
  std::vector<std::string> notes;
};

struct Ran {
  ProtocolState state;
  std::vector<std::string> notes;
  double spent_s = 0;
  std::vector<Verdict> verdicts;
};

Ran RunOn(MadeUp& source, double budget_s) {
  Definition definition;
  definition.budget_s = budget_s;
  const std::vector<CandidateRow> rows = MadeUpRows(source.candidates());
  Noting progress;
  const Forecasts nothing_predicted;
  Protocol protocol(definition, rows, nothing_predicted, source, progress);
  EXPECT_TRUE(protocol.Run());
  Ran ran{protocol.state(), progress.notes, protocol.spending().spent_s(), {}};
  std::vector<VerdictInput> inputs;
  for (const ObjectiveRace& race : ran.state.races)
    inputs.push_back(
        InputFor(race.objective, definition, rows, ran.state.trials, &race, ran.state.race_over));
  ran.verdicts = Decide(inputs);
  return ran;
}

// Noise with which a race decides nothing before its fifth round.
constexpr double kMuchNoise = 0.12;

TEST(Confirm, RaceCutShortByTheBudgetEndsWithAVerdictOnEveryObjective) {
  MadeUp source({{1, 1}, {1, 1}, {0.6, 0.6}, {1, 1}, {0.6, 0.6}, {0.6, 0.6}}, kMuchNoise);
  const Ran ran = RunOn(source, 70);
  EXPECT_LT(ran.state.rounds_done, 5);
  EXPECT_GE(ran.state.confirmations_done, 9);  // three candidates in three objectives
  for (const Verdict& verdict : ran.verdicts) {
    EXPECT_EQ(verdict.outcome, Outcome::kNoDifference) << verdict.objective;
    EXPECT_TRUE(verdict.confirmed) << verdict.objective;
  }
  EXPECT_GT(ran.spent_s, 70 - 5);
  EXPECT_LE(ran.spent_s, 70);
}

// Its next trials may all be long ones.
TEST(Confirm, AMachineWhoseTrialsDifferKeepsMoreTimeForTheConfirmation) {
  const std::vector<Speeds> speeds = {{1, 1}, {1.2, 1.2}, {0.6, 0.6}, {1, 1}};
  MadeUp even(speeds, kMuchNoise), uneven(speeds, kMuchNoise, 0, /*uneven=*/0.5);
  const Ran steady = RunOn(even, 60), unsteady = RunOn(uneven, 60);
  EXPECT_LT(unsteady.state.rounds_done, steady.state.rounds_done);
  EXPECT_GE(unsteady.state.confirmations_done, 8);
}

TEST(Confirm, AnObjectiveWhoseLeaderDidNotFitIsToldSo) {
  MadeUp source({{1, 1}, {1, 1}, {0.6, 0.6}, {1, 1}, {0.6, 0.6}, {0.6, 0.6}}, kMuchNoise);
  const Ran ran = RunOn(source, 45);
  ASSERT_EQ(ran.state.confirmed.size(), 1u);
  EXPECT_EQ(ran.verdicts[0].outcome, Outcome::kNoDifference);
  std::vector<int> unconfirmed;
  for (const Verdict& verdict : ran.verdicts)
    if (verdict.unconfirmed) unconfirmed.push_back(*verdict.unconfirmed);
  EXPECT_THAT(unconfirmed, Not(IsEmpty()));
  EXPECT_THAT(unconfirmed, Not(Contains(ran.state.confirmed.front())));
}

TEST(Confirm, BothOfTwoWinnersAreConfirmedIfThereIsRoom) {
  MadeUp source({{1, 1}, {2, 1}, {1, 2}}, 0.01);
  const Ran ran = RunOn(source, 60);
  EXPECT_THAT(ran.state.confirmed, testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(ran.verdicts[0].recommended, 1);
  EXPECT_EQ(ran.verdicts[1].recommended, 2);
}

TEST(Confirm, FirstObjectivesWinnerIsConfirmedIfThereIsNoRoomForAll) {
  MadeUp source({{1, 1}, {2, 1}, {1, 2}}, 0.01);
  const Ran ran = RunOn(source, 30);  // calibration, one round, and 24 trials
  EXPECT_THAT(ran.state.confirmed, ElementsAre(1));
  EXPECT_EQ(ran.verdicts[0].outcome, Outcome::kWinner);
  EXPECT_TRUE(ran.verdicts[0].confirmed);
  EXPECT_EQ(ran.verdicts[1].outcome, Outcome::kTooFewRounds);
  EXPECT_GT(ran.spent_s, 30 - 3);
  EXPECT_THAT(ran.notes,
              Contains("a round takes 4 s: 1 of at most 20 rounds fit the budget of 30 s "
                       "with the confirmation of 1 of 2 leaders; for all it needs "
                       "--budget 1m"));
}

TEST(Confirm, RaceContinuesIfThereIsNoRoomForAConfirmation) {
  MadeUp source({{1, 1}, {1.5, 1.5}}, 0.01);
  const Ran ran = RunOn(source, 21);  // calibration, one round, and 16 trials: 18 would confirm
  EXPECT_THAT(ran.state.confirmed, IsEmpty());
  EXPECT_THAT(ran.notes, Contains(HasSubstr("without a confirmation, which needs --budget 1m")));
  EXPECT_EQ(ran.state.rounds_done, 6);
  for (const Verdict& verdict : ran.verdicts) {
    EXPECT_EQ(verdict.outcome, Outcome::kTooFewRounds) << verdict.objective;
    EXPECT_EQ(verdict.recommended, 0);
    EXPECT_EQ(verdict.best, 1);
  }
}

TEST(Confirm, TrialsThatBecomeShorterMakeRoomForAConfirmation) {
  MadeUp source({{1, 1}, {1.5, 1.5}}, 0.01, /*slow=*/5);  // calibration and one round
  const Ran ran = RunOn(source, 80);                      // 60 s are left: 5 such rounds
  EXPECT_THAT(ran.notes, Contains(HasSubstr("the budget has no room to confirm")));
  EXPECT_THAT(ran.state.confirmed, ElementsAre(1));
  for (const Verdict& verdict : ran.verdicts) {
    EXPECT_EQ(verdict.recommended, 1) << verdict.objective;
    EXPECT_TRUE(verdict.confirmed) << verdict.objective;
  }
  EXPECT_LE(ran.spent_s, 80);
}

TEST(Confirm, LeaderRacesOnIfARoundOfAllNoLongerFits) {
  std::vector<Speeds> speeds(10, {1, 1});
  speeds[4] = {1.5, 1.5};
  MadeUp source(speeds, 0.01);
  const Ran ran = RunOn(source, 20);    // calibration, a round of 11, and 7 trials
  EXPECT_EQ(ran.state.rounds_done, 2);  // the second of the leaders and the runner-up
  EXPECT_GT(ran.spent_s, 20 - 3);
}

}  // namespace
}  // namespace pinion::harness
