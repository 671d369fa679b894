// The search proven without an engine: sweeps replayed on noise that was recorded or made up.

#include "harness/sweep/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "engine/base/check.h"
#include "engine/base/file.h"
#include "harness/stats/text.h"
#include "harness/store/store.h"
#include "harness/sweep/state.h"
#include "made_up_rows.h"
#include "tests/test_data.h"
#include "tests/watched.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

// Sanitizers make a replay about ten times as slow, and look for other things than rates: a few
// replays run there, and no rate is held, since a few replays of a series show none.
const int kReplays = tests::Watched() ? 16 : 150;
constexpr double kLuck = 1.64;  // standard errors

double StandardError(double p) { return std::sqrt(p * (1 - p) / kReplays); }

// Drifting noise: an autoregressive part (lag-1 correlation 0.6) and rare slow spells.
Recording MadeUpNoise(double spread) {
  std::mt19937 random(99);
  std::normal_distribution<double> normal(0, spread * 0.8);
  Recording recording;
  double state = 0;
  for (int i = 0; i < 3000; ++i) {
    state = 0.6 * state + normal(random);
    recording.log_speeds.push_back(state - (random() % 40 == 0 ? 5 * spread : 0));
  }
  return recording;
}

Planted Speeds(const std::vector<double>& speeds) {
  Planted planted;
  for (size_t i = 0; i < speeds.size(); ++i)
    planted.configurations.emplace_back(i ? "c" + std::to_string(i) : "default", speeds[i]);
  return planted;
}

ReplayReport Replay(const Recording& noise, const std::vector<double>& speeds, double budget_s = 0,
                    int seeds = kReplays) {
  ReplayOptions options;
  options.seeds = seeds;
  options.definition.budget_s = budget_s;
  auto report = ReplayPlanted(noise, Speeds(speeds), options);
  EXPECT_TRUE(report) << report.error().message;
  return *report;
}

int CrownedOf(const ReplayReport& report, const std::string& name) {
  for (const auto& [winner, count] : report.winners)
    if (winner == name) return count;
  return 0;
}

const ReplayFigure& Figure(const ReplayReport& report, const std::string& name) {
  const ReplayFigure* figure = report.by_blocks ? report.by_blocks->Find(name) : nullptr;
  CHECK(figure) << name;
  return *figure;
}

// Mostly worse, 1 % apart, and one that is better.
std::vector<double> TwentyFour() {
  std::vector<double> speeds = {1, 1.08};
  for (int i = 0; i < 22; ++i) speeds.push_back(0.76 + 0.011 * i);
  return speeds;
}

// Expects the promises that verdicts must keep on any series, and those on one that resolves 3 %.
// On others racing costs at most `noisy_cost` of the exhaustive search.
void ExpectHonest(const Recording& noise, double noisy_cost = 0.60) {
  const std::vector<double> equal(8, 1.0);
  std::vector<double> planted = equal, worse(8, 0.97);
  planted[3] = 1.05;
  worse[0] = 1;

  const ReplayReport none = Replay(noise, equal);
  const ReplayReport five = Replay(noise, planted);
  const ReplayReport none_better = Replay(noise, worse);
  const ReplayReport many = Replay(noise, TwentyFour());
  const ReplayReport cut_short = Replay(noise, TwentyFour(), 100);
  if (tests::Watched()) return;

  const double false_crowns = 1 - static_cast<double>(none.none) / kReplays;
  EXPECT_LE(false_crowns, 0.05 + kLuck * StandardError(0.05));
  EXPECT_LE(Figure(none, "false_best").mean.mean, 0.05 + kLuck * StandardError(0.05));

  const bool quiet = five.floor_p50 < 0.03;
  if (quiet) {
    EXPECT_GE(CrownedOf(five, "c3"), kReplays * (0.90 - kLuck * StandardError(0.90)));
  }

  EXPECT_LE(kReplays - none_better.none, kReplays * (0.005 + kLuck * StandardError(0.005)));

  EXPECT_LE(Figure(many, "cost").interval.low, quiet ? 0.25 : noisy_cost);
  if (quiet) {
    EXPECT_GE(Figure(many, "within_2_percent").mean.mean, 0.95 - kLuck * StandardError(0.95));
  }

  for (const ReplayReport* report : {&none, &five, &many}) {
    ASSERT_TRUE(report->interval_coverage);
    EXPECT_GE(*report->interval_coverage, 0.95 - kLuck * StandardError(0.95));
    EXPECT_LE(report->budget_overrun_p95, 0.05);
  }
  EXPECT_LE(cut_short.budget_overrun_p95, 0.05)
      << "a budget that cuts the race short is kept as well";
}

// Most near the default, some far, as settings lie: the best is followed by others 1 % to 5 %
// behind.
void ExpectTheBestOfManyClose(const Recording& noise, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(1, 0.05);
  std::vector<double> speeds = {1};
  while (speeds.size() < 24) speeds.push_back(normal(random));
  const ReplayReport report = Replay(noise, speeds);
  if (tests::Watched()) return;
  EXPECT_LE(Figure(report, "cost").interval.low, report.floor_p50 < 0.03 ? 0.25 : 0.60);
  if (report.floor_p50 >= 0.03) return;
  EXPECT_GE(Figure(report, "within_2_percent").mean.mean, 0.95 - kLuck * StandardError(0.95));
}

// Equal ones are the dearest to tell apart, and 24 of them look better than each other by chance.
void ExpectEqualOnesToEnd(const Recording& noise) {
  const ReplayReport report = Replay(noise, std::vector<double>(24, 1.0));
  if (tests::Watched()) return;
  EXPECT_LE(Figure(report, "cost").interval.low, report.floor_p50 < 0.03 ? 0.25 : 0.60);
  EXPECT_GE(report.none, kReplays * (0.95 - kLuck * StandardError(0.95)));
}

TEST(Replay, HoldsOnMadeUpNoise) { ExpectHonest(MadeUpNoise(0.02)); }

// With a fifth of noise hardly anybody can be sent home early.
TEST(Replay, HoldsOnWildNoise) { ExpectHonest(MadeUpNoise(0.2), 1.0); }

// Calls `expect` with each recorded series.
void OnRecordedNoise(const std::function<void(const Recording&)>& expect) {
  for (const char* file : {"quiet.csv", "disturbed.csv"})
    for (const char* column : {"memory_bytes_per_s", "fma_flops"}) {
      SCOPED_TRACE(std::string(file) + " " + column);
      const auto recording = ReadRecording(tests::TestData() + "/noise/" + file, column);
      ASSERT_TRUE(recording) << recording.error().message;
      expect(*recording);
    }
}

TEST(Replay, HoldsOnRecordedNoise) {
  OnRecordedNoise([](const Recording& recording) {
    ExpectHonest(recording);
    ExpectEqualOnesToEnd(recording);
    ExpectTheBestOfManyClose(recording, 1);
  });
}

// The promise of docs/verdicts.md on eight equal configurations, by the whole interval.
TEST(Replay, EqualOnesAreRarelyCrowned) {
  OnRecordedNoise([](const Recording& recording) {
    const ReplayReport report =
        Replay(recording, std::vector<double>(8, 1.0), 0, tests::Watched() ? kReplays : 1000);
    const ReplayFigure& crowned = Figure(report, "false_crowns");
    EXPECT_EQ(crowned.mean.n, static_cast<size_t>(report.seeds));
    EXPECT_LE(crowned.effective_replays, report.seeds);
    EXPECT_LE(crowned.mean.mean, crowned.interval.high);
    if (tests::Watched()) return;
    EXPECT_LE(crowned.interval.high, 0.05);
  });
}

TEST(Replay, TheDefaultsAreCalledBestIfAllOthersAreFarWorse) {
  const Recording noise = MadeUpNoise(0.02);
  const ReplayReport worse = Replay(noise, {1, 0.8, 0.8, 0.8});
  EXPECT_GE(Figure(worse, "default_best").mean.mean, 0.9);
  EXPECT_EQ(Figure(worse, "false_best").mean.mean, 0);
  const ReplayReport equal = Replay(noise, {1, 0.8, 1, 0.8});
  EXPECT_LE(Figure(equal, "default_best").mean.mean, 0.1);
  EXPECT_EQ(Figure(equal, "false_best").mean.mean, Figure(equal, "default_best").mean.mean);
}

// Half of this series can resolve 5 %, half cannot: the start of a replay decides its result, so
// many replays say no more than the few stretches do.
TEST(Replay, ReplaysOfTheSameStretchAreNotIndependent) {
  Recording noise = MadeUpNoise(0.005);
  const Recording wild = MadeUpNoise(0.3);
  noise.log_speeds.resize(500);
  noise.log_speeds.insert(noise.log_speeds.end(), wild.log_speeds.begin(),
                          wild.log_speeds.begin() + 500);
  std::vector<double> planted(8, 1.0);
  planted[3] = 1.05;
  const ReplayReport report = Replay(noise, planted, 0, 200);
  const ReplayFigure& found = Figure(report, "found");
  const SeriesUse& use = report.by_blocks->use;
  EXPECT_EQ(use.rows, 1000);
  EXPECT_NEAR(use.stretches, 1000 / use.rows_per_sweep, 0.1);
  EXPECT_GE(found.effective_replays, use.stretches);
  EXPECT_LT(found.effective_replays, 3 * use.stretches);
  const double binomial = std::sqrt(found.mean.mean * (1 - found.mean.mean) / 200);
  EXPECT_GT(found.interval.high - found.interval.low, 2 * 1.96 * 1.5 * binomial);
}

TEST(Replay, TheIntervalsAreInTheTextAndInTheJson) {
  const ReplayReport report = Replay(MadeUpNoise(0.02), {1, 1.05, 1});
  const ReplayFigure& cost = Figure(report, "cost");
  EXPECT_THAT(Render(report), HasSubstr("3000 rows, a sweep takes about "));
  EXPECT_THAT(Render(report),
              HasSubstr("(" + Percent(cost.interval.low) + " to " + Percent(cost.interval.high)));
  const Json json = ToJson(report);
  EXPECT_EQ(json.Find("series")->Find("rows")->number(), 3000);
  const Json* figure = json.Find("figures")->Find("cost");
  EXPECT_EQ(figure->Find("high")->number(), cost.interval.high);
  EXPECT_EQ(figure->Find("replays")->number(), report.seeds);
}

// The budget of a quickstart: 45 trials of six configurations. Trials that take twice as long
// in a slow spell may leave too few; then the time is spent.
void ExpectAVerdictOfAQuickstart(const Recording& noise) {
  const ReplayReport equal = Replay(noise, std::vector<double>(6, 1.0), 45);
  const ReplayReport one = Replay(noise, {1, 0.55, 1.08, 0.6, 1, 0.6}, 45);
  if (tests::Watched()) return;
  EXPECT_LE(equal.undecided, kReplays * (0.05 + kLuck * StandardError(0.05)));
  EXPECT_LE(equal.unspent, kReplays * 0.01);
  EXPECT_GE(equal.none, kReplays * (0.95 - kLuck * StandardError(0.95)));
  EXPECT_GE(equal.interval_coverage.value_or(1), 0.95 - kLuck * StandardError(0.95));
  EXPECT_LE(equal.budget_overrun_p95, 0.05);
  EXPECT_LE(one.undecided, kReplays * (0.05 + kLuck * StandardError(0.05)));
  EXPECT_LE(one.unspent, kReplays * 0.01);
}

TEST(Replay, AQuickstartEndsWithAVerdictInAnyNoise) {
  OnRecordedNoise(ExpectAVerdictOfAQuickstart);
}

// As above, with what a sweep adds: more objectives, and candidates that are noisier than the
// defaults.
TEST(Replay, HoldsForSeveralObjectivesAndForNoisierCandidates) {
  ReplayOptions options;
  options.seeds = kReplays;
  OnRecordedNoise([&](const Recording& recording) {
    for (const double factor : {1.0, 2.0})
      for (const size_t objectives : {size_t{1}, size_t{3}}) {
        Planted planted = Speeds(std::vector<double>(8, 1.0));
        for (size_t i = 1; i < 8; ++i) planted.noise[planted.configurations[i].first] = factor;
        planted.objectives = objectives;
        const auto report = ReplayPlanted(recording, planted, options);
        ASSERT_TRUE(report) << report.error().message;
        if (tests::Watched()) continue;
        EXPECT_GE(report->none, kReplays * (0.95 - kLuck * StandardError(0.95)))
            << objectives << " objectives, noise " << factor;
        EXPECT_EQ(Figure(*report, "small_crowned").mean.mean, 0);
        EXPECT_GE(report->interval_coverage.value_or(1), 0.95 - kLuck * StandardError(0.95));
        EXPECT_LE(report->budget_overrun_p95, 0.05);
      }
  });
}

TEST(Replay, NoiseAndObjectivesAreUsed) {
  ReplayOptions options;
  options.seeds = 20;
  const Recording noise = MadeUpNoise(0.01);
  Planted planted = Speeds({1, 1.06, 1});
  const auto found = [&] {
    const auto report = ReplayPlanted(noise, planted, options);
    EXPECT_TRUE(report) << report.error().message;
    return std::pair(CrownedOf(*report, "c1"), report->cost_fraction_p50);
  };
  const auto alone = found();
  EXPECT_GE(alone.first, 18);
  planted.objectives = 3;
  EXPECT_GT(found().second, alone.second) << "more comparisons take more rounds";
  planted.noise["c1"] = 20;
  EXPECT_LE(found().first, 5);
}

// A sweep's database whose trials lasted from 5 to 40 s, by candidate and by chance.
std::string StoredSweep() {
  const auto path = std::filesystem::temp_directory_path() /
                    ("pinion_replay_test_" + std::to_string(getpid()) + ".db");
  std::filesystem::remove(path);
  auto store = Store::Create(path);
  EXPECT_TRUE(store) << store.error().message;
  SweepMeta meta;
  meta.definition.objectives = {Objective::kThroughput};
  meta.machine = meta.budget = meta.model_facts = Json::MakeObject();
  EXPECT_TRUE(WriteMeta(**store, meta));
  EXPECT_TRUE((*store)->PutCandidates(MadeUpRows(6)));
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 1);
  for (int round = 1; round <= 8; ++round)
    for (int id = -1; id < 6; ++id) {  // -1: the baseline's second run
      TrialRow trial;
      trial.candidate = std::max(0, id);
      trial.copy = id < 0 ? 1 : 0;
      trial.round = round;
      trial.ok = true;
      trial.seconds =
          std::clamp((8 + 4 * trial.candidate) * std::exp(0.3 * normal(random)), 5., 40.);
      trial.samples = {{"output_tokens_per_s", 0, 100 * std::exp(0.02 * normal(random))}};
      EXPECT_TRUE((*store)->PutTrial(trial, {}));
    }
  return path;
}

Planted On(const RecordedSweep& recorded, const std::string& effects) {
  std::vector<std::string> names;
  for (const RecordedSweep::Contestant& one : recorded.contestants) names.push_back(one.name);
  const auto planted = ParsePlantedOn(names, *Json::Parse(effects));
  EXPECT_TRUE(planted) << planted.error().message;
  return *planted;
}

TEST(Replay, ABudgetIsKeptWithTheDurationsOfARecordedSweep) {
  const std::string path = StoredSweep();
  const auto recorded = ReadRecordedSweep(path, std::nullopt);
  std::filesystem::remove(path);
  ASSERT_TRUE(recorded) << recorded.error().message;
  for (const double budget_s : {900.0, 1800.0, 7200.0}) {
    ReplayOptions options;
    options.seeds = kReplays;
    options.definition.budget_s = budget_s;
    const auto report = ReplaySweep(*recorded, On(*recorded, "{}"), options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_LE(report->budget_overrun_p95, 0.05) << budget_s;
  }
}

// The recorded candidates are equal and their noise is 2 %.
TEST(Replay, EffectsPlantedOnARecordedSweepAreFound) {
  const std::string path = StoredSweep();
  const auto recorded = ReadRecordedSweep(path, std::nullopt);
  std::filesystem::remove(path);
  ASSERT_TRUE(recorded) << recorded.error().message;
  const std::string third = recorded->contestants[2].name;
  ReplayOptions options;
  options.seeds = 40;
  options.definition.budget_s = 1e5;
  const auto replay = [&](const std::string& effects) {
    const auto report = ReplaySweep(*recorded, On(*recorded, effects), options);
    EXPECT_TRUE(report) << report.error().message;
    return *report;
  };
  const std::string faster = "\"configurations\":{\"" + third + "\":1.2}";
  EXPECT_EQ(CrownedOf(replay("{" + faster + "}"), third), 40);
  // Half of the trials would end any sweep, two of five nearly do.
  EXPECT_LE(CrownedOf(replay("{" + faster + ",\"failures\":0.4}"), third), 10);
  // The truth stays what it is, and is harder to find.
  EXPECT_LE(CrownedOf(replay("{" + faster + ",\"noise\":{\"" + third + "\":40}}"), third), 10);
  const auto calm = replay("{" + faster + ",\"objectives\":3}");
  EXPECT_EQ(CrownedOf(calm, third), 40);
  EXPECT_GT(replay("{" + faster + ",\"disturbed\":0.2,\"objectives\":3}").cost_fraction_p50,
            calm.cost_fraction_p50)
      << "disturbed trials are repeated";
}

TEST(Replay, TheSameSeedGivesTheSameSearch) {
  const Recording noise = MadeUpNoise(0.05);
  EXPECT_EQ(ToJson(Replay(noise, TwentyFour())).Dump(), ToJson(Replay(noise, TwentyFour())).Dump());
}

TEST(Replay, EveryStrategyFindsAClearWinner) {
  const Recording noise = MadeUpNoise(0.01);
  std::map<Strategy, double> costs;
  for (const Strategy strategy : {Strategy::kRacing, Strategy::kGrid, Strategy::kRandom,
                                  Strategy::kCoordinate, Strategy::kHalving}) {
    ReplayOptions options;
    options.seeds = 10;
    options.definition.strategy = strategy;
    options.definition.budget_s = 1e6;
    options.definition.random_points = 7;
    const auto report = ReplayPlanted(noise, Speeds({1, 0.9, 1.3, 0.8, 1, 1, 1}), options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(CrownedOf(*report, "c2"), 10) << Name(strategy);
    costs[strategy] = report->cost_fraction_p50;
  }
  EXPECT_GT(costs[Strategy::kGrid], 1);  // all rounds of all of them
  EXPECT_LT(costs[Strategy::kRacing], costs[Strategy::kGrid] / 2);
}

}  // namespace
}  // namespace pinion::harness
