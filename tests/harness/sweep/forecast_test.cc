// Candidates that the protocol measures under given predictions, with made-up trials.

#include "harness/sweep/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "harness/sweep/protocol.h"
#include "made_up_rows.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Trials of a second each, of candidates with these speeds and 1 % of noise.
class MadeUp : public TrialSource {
 public:
  explicit MadeUp(std::vector<double> speeds) : speeds_(std::move(speeds)) {}
  Result<std::optional<TrialRow>> Run(const Slot& slot, int, const ProgressLine&) override {
    TrialRow trial;
    static_cast<Slot&>(trial) = slot;
    trial.ok = true;
    trial.seconds = 1;
    const double speed = speeds_[static_cast<size_t>(slot.candidate)];
    trial.samples = {{"output_tokens_per_s", 0, speed * std::exp(noise_(random_))}};
    order.push_back(slot.candidate);
    return std::optional(std::move(trial));
  }
  const std::map<Slot, TrialRow>& Stored() const override { return nothing_; }
  size_t TrialsOf(int candidate) const {
    return static_cast<size_t>(std::count(order.begin(), order.end(), candidate));
  }

  std::vector<int> order;

 private:
  std::vector<double> speeds_;
  std::map<Slot, TrialRow> nothing_;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> noise_{0, 0.01};
};

// Forecasts of the throughput: expected as it is, and at best half as much again.
Forecasts Foreseen(const std::vector<double>& speeds) {
  Forecasts forecasts;
  for (size_t i = 0; i < speeds.size(); ++i)
    forecasts[static_cast<int>(i)][Objective::kThroughput] = {std::log(speeds[i]),
                                                              std::log(1.5 * speeds[i])};
  return forecasts;
}

struct Ran {
  ProtocolState state;
  SweepEnd end = SweepEnd::kDone;
};
Ran RunOn(MadeUp& source, const Forecasts& forecasts, size_t count, double budget_s) {
  Definition definition;
  definition.objectives = {Objective::kThroughput};
  definition.budget_s = budget_s;
  const std::vector<CandidateRow> rows = MadeUpRows(count);
  SilentProgress silence;
  Protocol protocol(definition, rows, forecasts, source, silence);
  const auto end = protocol.Run();
  EXPECT_TRUE(end) << end.error().message;
  return {protocol.state(), *end};
}

TEST(Protocol, CandidateThatCannotWinIsNotMeasured) {
  const std::vector<double> speeds = {100, 60, 110, 70};
  MadeUp source(speeds);
  const Ran ran = RunOn(source, Foreseen(speeds), 4, 1000);
  // At best 90: below what the baseline provably reached before the first round.
  EXPECT_EQ(source.TrialsOf(1), 0u);
  ASSERT_EQ(ran.state.pruned.size(), 1u);
  EXPECT_THAT(ran.state.pruned.at(1), HasSubstr("at best 9"));
  EXPECT_THAT(ran.state.pruned.at(1), HasSubstr("of the least that default reached in 6"));
  EXPECT_GT(source.TrialsOf(3), 0u);  // at best 105
  EXPECT_THAT(ran.state.confirmed, ElementsAre(2));
}

TEST(Protocol, WithoutForecastsAllCandidatesAreMeasured) {
  MadeUp source({100, 60, 110, 70});
  const Ran ran = RunOn(source, {}, 4, 1000);
  for (int id = 0; id < 4; ++id) EXPECT_GT(source.TrialsOf(id), 0u) << id;
  EXPECT_TRUE(ran.state.pruned.empty());
}

TEST(Protocol, CeilingsThatAreBeatenPruneNoCandidate) {
  MadeUp source({100, 60, 110, 70});
  const Ran ran = RunOn(source, Foreseen({50, 30, 55, 35}), 4, 1000);  // a probe disturbed by half
  EXPECT_TRUE(ran.state.pruned.empty());
  EXPECT_GT(source.TrialsOf(1), 0u);
}

TEST(Protocol, MostPromisingGoFirstIfTheBudgetHasNoRoomForAll) {
  std::vector<double> speeds = {100};
  for (int i = 1; i <= 40; ++i) speeds.push_back(100 - i % 7);
  speeds[33] = 115;
  MadeUp source(speeds);
  const Ran ran = RunOn(source, Foreseen(speeds), speeds.size(), 100);
  EXPECT_GT(source.TrialsOf(33), 0u);
  EXPECT_THAT(ran.state.confirmed, ElementsAre(33));
  EXPECT_FALSE(ran.state.passed_over.empty());
  for (const auto& [id, reason] : ran.state.passed_over) {
    EXPECT_EQ(source.TrialsOf(id), 0u) << id;
    EXPECT_LT(speeds[static_cast<size_t>(id)], 100) << id;
  }
  EXPECT_LE(source.order.size(), 105u);  // 5 % above the budget at most
}

TEST(Protocol, RoomThatARaceLeavesGoesToTheNextMostPromising) {
  std::vector<double> speeds(25, 100);
  for (size_t i = 1; i < speeds.size(); ++i) speeds[i] = 99 - static_cast<double>(i);
  MadeUp source(speeds);
  const Ran ran = RunOn(source, Foreseen(speeds), speeds.size(), 100);
  std::set<int> measured(source.order.begin(), source.order.end());
  EXPECT_GT(measured.size(), 14u);  // the first race has room for 13 beside the default
  EXPECT_LT(measured.size(), speeds.size());
  EXPECT_EQ(measured.size() + ran.state.passed_over.size(), speeds.size());
}

// Trials whose peak memory is given beside their speeds.
class Heavy : public MadeUp {
 public:
  Heavy(std::vector<double> speeds, std::vector<double> gib)
      : MadeUp(std::move(speeds)), gib_(std::move(gib)) {}
  Result<std::optional<TrialRow>> Run(const Slot& slot, int position,
                                      const ProgressLine& line) override {
    auto trial = MadeUp::Run(slot, position, line);
    const double bytes = gib_[static_cast<size_t>(slot.candidate)] * (1 << 30);
    (*trial)->samples.push_back({"peak_rss_bytes", 0, bytes});
    return trial;
  }

 private:
  std::vector<double> gib_;
};

TEST(Protocol, CandidateThatBreaksAConstraintIsOutAfterItsFirstTrialWithTheNumber) {
  Heavy source({100, 130, 110}, {4, 9, 7.5});
  Definition definition;
  definition.objectives = {Objective::kThroughput};
  definition.constraints.peak_rss_bytes = uint64_t{8} << 30;
  const std::vector<CandidateRow> rows = MadeUpRows(3);
  SilentProgress silence;
  const Forecasts nothing;
  Protocol protocol(definition, rows, nothing, source, silence);
  const auto end = protocol.Run();
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(source.TrialsOf(1), 1u);
  EXPECT_THAT(protocol.state().disqualified.at(1), HasSubstr("9.0 GiB"));
  EXPECT_THAT(protocol.state().disqualified.at(1), HasSubstr("allows 8.0 GiB"));
  EXPECT_THAT(protocol.state().confirmed, ElementsAre(2));
}

TEST(Protocol, BaselineThatBreaksAConstraintEndsTheSweep) {
  Heavy source({100, 130}, {9, 4});
  Definition definition;
  definition.objectives = {Objective::kThroughput};
  definition.constraints.peak_rss_bytes = uint64_t{8} << 30;
  const std::vector<CandidateRow> rows = MadeUpRows(2);
  SilentProgress silence;
  const Forecasts nothing;
  Protocol protocol(definition, rows, nothing, source, silence);
  const auto end = protocol.Run();
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message, HasSubstr("the defaults are disqualified"));
}

TEST(Forecasts, AreReadFromPredictionsByName) {
  const Json predictions = *Json::Parse(R"({"candidates":[
    {"name":"c1","prediction":{"output_tokens_per_s":10,"ttft_s":1,"tpot_s":0.1,
     "at_best":{"output_tokens_per_s":20,"ttft_s":0.5,"tpot_s":0.05}}},
    {"name":"default","excluded":"too large"}]})");
  const Forecasts forecasts =
      ForecastsFrom(predictions, MadeUpRows(2), {Objective::kThroughput, Objective::kLatency}, 11);
  ASSERT_EQ(forecasts.size(), 1u);
  const auto& of = forecasts.at(1);
  EXPECT_DOUBLE_EQ(of.at(Objective::kThroughput).expected, std::log(10));
  EXPECT_DOUBLE_EQ(of.at(Objective::kThroughput).at_best, std::log(20));
  EXPECT_DOUBLE_EQ(of.at(Objective::kLatency).at_best, -std::log(1.0));
  EXPECT_TRUE(ForecastsFrom(Json(), MadeUpRows(2), {Objective::kThroughput}, 11).empty());
}

TEST(Forecasts, PutTheMostPromisingFirst) {
  const auto ordered = ByPromise({1, 2, 3, 4},
                                 {{1, {{Objective::kThroughput, {1, 2}}}},
                                  {3, {{Objective::kThroughput, {3, 4}}}},
                                  {4, {{Objective::kThroughput, {2, 9}}}}},
                                 {Objective::kThroughput});
  EXPECT_THAT(ordered, ElementsAre(3, 4, 1, 2));
}

}  // namespace
}  // namespace pinion::harness
