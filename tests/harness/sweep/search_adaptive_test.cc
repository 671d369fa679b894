// Halving, and searches by proposals, on made-up speeds without noise.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/sweep/protocol.h"
#include "harness/sweep/source.h"
#include "made_up_rows.h"

namespace pinion::harness {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::Not;
using testing::SizeIs;

// Trials of a second each of candidates with these speeds; speed 0 fails. Proposes candidates in
// their order, and keeps what it was asked.
class Given : public StoredSource {
 public:
  explicit Given(std::vector<double> speeds, const std::vector<TrialRow>& stored = {})
      : StoredSource(stored), speeds_(std::move(speeds)) {}

  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine& line) override {
    if (stored_.count(slot)) return StoredSource::Run(slot, position, line);
    TrialRow trial;
    static_cast<Slot&>(trial) = slot;
    const double speed = speeds_[static_cast<size_t>(slot.candidate)];
    trial.ok = speed > 0;
    trial.seconds = 1;
    if (trial.ok)
      trial.samples = {
          {"output_tokens_per_s", 0, speed}, {"ttft_s", 1, speed}, {"tpot_s", 1, speed}};
    ran.push_back(trial);
    return std::optional(std::move(trial));
  }
  Result<std::vector<int>> Propose(int round, const ProposalQuestion& question) override {
    auto begun = StoredSource::Propose(round, question);
    if (begun && !begun->empty()) return begun;
    questions.push_back(question);
    return std::vector<int>(question.among.begin(),
                            question.among.begin() + static_cast<ptrdiff_t>(question.count));
  }
  size_t candidates() const { return speeds_.size(); }

  std::vector<TrialRow> ran;
  std::vector<ProposalQuestion> questions;

 private:
  std::vector<double> speeds_;
};

ProtocolState RunOn(TrialSource& source, size_t candidates, Strategy strategy, double budget_s,
                    std::vector<Objective> objectives, SweepEnd& end) {
  Definition definition;
  definition.strategy = strategy;
  definition.budget_s = budget_s;
  definition.objectives = std::move(objectives);
  const std::vector<CandidateRow> rows = MadeUpRows(candidates);
  SilentProgress silence;
  const Forecasts nothing_predicted;
  Protocol protocol(definition, rows, nothing_predicted, source, silence);
  const auto ended = protocol.Run();
  EXPECT_TRUE(ended);
  end = ended.value_or(SweepEnd::kInterrupted);
  return protocol.state();
}

ProtocolState Search(Strategy strategy, Given& source, double budget_s = 1e4,
                     std::vector<Objective> objectives = {Objective::kThroughput}) {
  SweepEnd end = SweepEnd::kDone;
  return RunOn(source, source.candidates(), strategy, budget_s, std::move(objectives), end);
}

int RacedTimes(const ProtocolState& state, int candidate) {
  return static_cast<int>(
      std::count_if(state.trials.begin(), state.trials.end(), [&](const TrialRow& trial) {
        return trial.candidate == candidate && trial.phase == Phase::kRace;
      }));
}

// 1 and its candidates 1.01, 1.02, ...
std::vector<double> Rising(size_t candidates) {
  std::vector<double> speeds;
  for (size_t i = 0; i <= candidates; ++i) speeds.push_back(1 + 0.01 * static_cast<double>(i));
  return speeds;
}

TEST(Halving, TheBetterHalfIsMeasuredTwiceAsLong) {
  Given source(Rising(12));
  const ProtocolState state = Search(Strategy::kHalving, source);
  for (int worse = 1; worse <= 6; ++worse) EXPECT_EQ(RacedTimes(state, worse), 1) << worse;
  for (int middle = 7; middle <= 9; ++middle) EXPECT_EQ(RacedTimes(state, middle), 1 + 2);
  for (int best = 10; best <= 12; ++best) EXPECT_GT(RacedTimes(state, best), 1 + 2);
  EXPECT_THAT(state.confirmed, Contains(12));
  EXPECT_EQ(state.dropped.at(1), "in the worse half after 1 round");
  EXPECT_EQ(state.dropped.at(7), "in the worse half after 3 rounds");
}

TEST(Halving, EachObjectiveKeepsItsBest) {
  // The setting that makes a candidate fast here makes its answers late.
  Given source(Rising(16));
  const ProtocolState state =
      Search(Strategy::kHalving, source, 1e4, {Objective::kThroughput, Objective::kLatency});
  EXPECT_GT(RacedTimes(state, 1), 4) << "the best latency";
  EXPECT_GT(RacedTimes(state, 16), 4) << "the best throughput";
  EXPECT_THAT(RacedTimes(state, 8), Le(4)) << "the best of neither";
}

TEST(Halving, AFewRaceAtOnce) {
  Given source(Rising(3));
  const ProtocolState state = Search(Strategy::kHalving, source);
  EXPECT_THAT(state.dropped, Not(Contains(testing::Pair(testing::_, HasSubstr("half")))));
}

TEST(Halving, ATightBudgetStillConfirms) {
  Given source(Rising(12));
  const ProtocolState state = Search(Strategy::kHalving, source, 70);
  EXPECT_THAT(state.confirmed, Not(IsEmpty()));
  EXPECT_LE(source.ran.size(), 70u);
}

// Candidates that were never ranked are in no half.
TEST(Halving, ABudgetWithoutRoomForARoundSaysSo) {
  Given source(Rising(60));
  const ProtocolState state = Search(Strategy::kHalving, source, 30);
  EXPECT_THAT(state.dropped, IsEmpty());
  EXPECT_THAT(state.passed_over, SizeIs(60));
  EXPECT_THAT(state.passed_over.at(60), HasSubstr("no room for a round"));
}

TEST(Proposals, TheModelIsToldTheResults) {
  Given source({1, 2, 0, 0.5, 1, 1, 1, 1, 1});
  Search(Strategy::kTpe, source);
  ASSERT_THAT(source.questions, SizeIs(Ge(2u)));
  EXPECT_THAT(source.questions[0].tried, IsEmpty());
  EXPECT_THAT(source.questions[0].among, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(source.questions[0].count, 4u);
  const std::vector<CandidateGain>& tried = source.questions[1].tried;
  ASSERT_THAT(tried, SizeIs(4));
  EXPECT_EQ(tried[0].id, 1);
  EXPECT_NEAR(*tried[0].gain, std::log(2), 1e-9);
  EXPECT_FALSE(tried[1].gain) << "it fails";
  EXPECT_NEAR(*tried[2].gain, std::log(0.5), 1e-9);
  EXPECT_THAT(source.questions[1].among, ElementsAre(5, 6, 7, 8));
}

TEST(Proposals, TheBestRaceAndAreConfirmed) {
  std::vector<double> speeds(17, 1);
  speeds[1] = 0.9;
  speeds[6] = 1.3;
  Given source(speeds);
  const ProtocolState state = Search(Strategy::kTpe, source);
  EXPECT_GT(RacedTimes(state, 6), 1);
  EXPECT_THAT(state.confirmed, Contains(6));
  EXPECT_THAT(state.dropped.at(1), HasSubstr("not among the best"));
}

// The first proposal holds the best: ten more rounds find nothing, and the rest stays unmeasured.
TEST(Proposals, ASearchThatFindsNothingBetterEnds) {
  std::vector<double> speeds(101, 1);
  speeds[2] = 1.3;
  Given source(speeds);
  const ProtocolState state = Search(Strategy::kTpe, source);
  EXPECT_THAT(source.questions, SizeIs(1 + 10));
  EXPECT_THAT(state.passed_over, SizeIs(100 - 11 * 4));
}

TEST(Proposals, TheBudgetHasRoomForTheLastRace) {
  Given source(Rising(200));
  const ProtocolState state = Search(Strategy::kTpe, source, 120);
  EXPECT_LE(source.ran.size(), 120u);
  EXPECT_THAT(state.confirmed, Not(IsEmpty()));
}

// A sweep that goes on, and the report of one, ask for nothing that was answered before.
TEST(Proposals, StoredRoundsAreNotProposedAnew) {
  Given whole(Rising(20));
  const ProtocolState state = Search(Strategy::kTpe, whole);
  Given again(Rising(20), whole.ran);
  const ProtocolState repeated = Search(Strategy::kTpe, again);
  EXPECT_THAT(again.questions, IsEmpty());
  EXPECT_THAT(again.ran, IsEmpty());
  EXPECT_EQ(repeated.confirmed, state.confirmed);
  EXPECT_EQ(repeated.dropped, state.dropped);

  // In the middle of the second round: its candidates are the ones that it began with.
  const std::vector<TrialRow> part(whole.ran.begin(), whole.ran.begin() + 6 + 6 + 4);
  Given resumed(Rising(20), part);
  Search(Strategy::kTpe, resumed);
  const std::vector<CandidateGain>& tried = resumed.questions.front().tried;
  EXPECT_THAT(tried, SizeIs(AllOf(Ge(5u), Le(8u))));
  for (const TrialRow& trial : part) {
    const bool known = std::any_of(tried.begin(), tried.end(), [&](const CandidateGain& one) {
      return one.id == trial.candidate;
    });
    EXPECT_TRUE(trial.candidate == 0 || known) << trial.candidate;
  }
}

TEST(Proposals, AStoreWithoutAFurtherRoundIsInterrupted) {
  Given whole(Rising(20));
  Search(Strategy::kTpe, whole);
  StoredSource first({whole.ran.begin(), whole.ran.begin() + 6 + 6});
  SweepEnd end = SweepEnd::kDone;
  const ProtocolState state = RunOn(first, 21, Strategy::kTpe, 1e4, {Objective::kThroughput}, end);
  EXPECT_EQ(end, SweepEnd::kInterrupted);
  EXPECT_THAT(state.confirmed, IsEmpty());
}

}  // namespace
}  // namespace pinion::harness
