#include "harness/load/slo_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/load/slo_report.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

// A server whose share of good requests is known at every load.
SloBoundary Find(const SloSearchOptions& options, const std::function<double(double)>& share,
                 size_t requests, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  const auto found = FindSloBoundary(options, [&](double load) -> Result<LevelRun> {
    EXPECT_GE(load, options.low);
    EXPECT_LE(load, options.high);
    std::binomial_distribution<size_t> good(requests, share(load));
    return LevelRun{good(random), requests};
  });
  EXPECT_TRUE(found);
  return *found;
}

// Half of what is asked for at 10, gently.
double Slope(double load) { return 1 / (1 + std::pow(load / 15, 4)); }

TEST(SloSearch, FindsACliffFromEitherSide) {
  const auto cliff = [](double load) { return load <= 7.3 ? 1.0 : 0.0; };
  for (double start : {0.05, 1.0, 300.0}) {
    const SloBoundary found = Find({.start = start, .low = 0.01}, cliff, 20);
    ASSERT_TRUE(found.pass && found.fail);
    const SloLevel &pass = found.levels[*found.pass], &fail = found.levels[*found.fail];
    EXPECT_LE(pass.load, 7.3);
    EXPECT_GT(fail.load, 7.3);
    EXPECT_LE(fail.load / pass.load, 1.05);
    EXPECT_GE(std::min(pass.runs, fail.runs), 3);
    EXPECT_TRUE(found.is_cliff && found.is_settled);
  }
}

TEST(SloSearch, ConcurrencyIsWholeAndNeighbouring) {
  const SloBoundary found = Find(
      {.start = 8, .whole = true}, [](double load) { return load <= 22 ? 1.0 : 0.2; }, 20);
  EXPECT_EQ(found.levels[*found.pass].load, 22);
  EXPECT_EQ(found.levels[*found.fail].load, 23);
}

// The fit averages luck away: the answer lies near the load whose true share is what was asked for.
TEST(SloSearch, FindsASlopeThroughNoise) {
  const double truth = 15 * std::pow(1 / 0.9 - 1, 0.25);
  int near = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const SloBoundary found = Find({.start = 1, .max_runs = 40}, Slope, 200, seed);
    ASSERT_TRUE(found.pass && found.fail);
    EXPECT_FALSE(found.is_cliff);
    const double middle =
        std::sqrt(found.levels[*found.pass].load * found.levels[*found.fail].load);
    near += std::abs(std::log(middle / truth)) < 0.15 ? 1 : 0;
  }
  EXPECT_GE(near, 36);
}

TEST(SloSearch, ShareNeverRisesInTheFit) {
  const SloBoundary found = Find({.start = 1, .max_runs = 40}, Slope, 20, 5);
  for (size_t i = 1; i < found.levels.size(); ++i) {
    EXPECT_LT(found.levels[i - 1].load, found.levels[i].load);
    EXPECT_GE(found.levels[i - 1].fitted, found.levels[i].fitted);
  }
}

TEST(SloSearch, ReportsIfNoLoadFailsOrPasses) {
  const SloSearchOptions options{.start = 4, .low = 1, .high = 16};
  const SloBoundary best = Find(
      options, [](double) { return 1.0; }, 10);
  EXPECT_FALSE(best.fail);
  EXPECT_EQ(best.levels[*best.pass].load, 16);
  const SloBoundary worst = Find(
      options, [](double) { return 0.0; }, 10);
  EXPECT_FALSE(worst.pass);
  EXPECT_EQ(worst.levels[*worst.fail].load, 1);
  EXPECT_THAT(Render(SloReport{{}, {}, options, worst, {}}), HasSubstr("--find-low"));
}

TEST(SloSearch, KeepsToTheLimitOfRuns) {
  const SloBoundary found = Find({.start = 1, .low = 0.001, .repeats = 1, .max_runs = 4}, Slope, 9);
  EXPECT_EQ(found.runs, 4);
  EXPECT_FALSE(found.is_settled);
}

std::optional<double> Attaining(std::vector<std::pair<double, size_t>> good_of_100, double attain) {
  std::vector<SloLevel> levels;
  for (const auto& [load, good] : good_of_100) {
    SloLevel& level = levels.emplace_back();
    level.load = load;
    level.good = good;
    level.total = 100;
  }
  return LoadAttaining(JudgeLevels(levels, attain), attain);
}

TEST(LoadAttaining, LiesBetweenTheLevelsAroundIt) {
  EXPECT_NEAR(*Attaining({{1, 100}, {2, 95}, {8, 85}}, 0.9), 4, 1e-9) << "halfway in the logarithm";
  EXPECT_NEAR(*Attaining({{1, 100}, {2, 90}, {8, 50}}, 0.9), 2, 1e-9);
  EXPECT_NEAR(*Attaining({{1, 100}, {4, 0}}, 0.5), 2, 1e-9);
}

TEST(LoadAttaining, BeyondTheLevelsIsTheLastOneOrBelowTheFirst) {
  EXPECT_EQ(*Attaining({{1, 100}, {2, 95}}, 0.9), 2);
  EXPECT_NEAR(*Attaining({{4, 80}}, 0.9), 2, 1e-9) << "half of what may be missed from all good";
  EXPECT_NEAR(*Attaining({{4, 0}}, 0.9), 0.4, 1e-9);
  EXPECT_GT(*Attaining({{4, 0}}, 1), 0) << "its logarithm is a score";
  EXPECT_FALSE(Attaining({}, 0.9));
}

TEST(LoadAttaining, ALuckyLevelIsPooledWithItsNeighbour) {
  // 95, then 75 and 97 of 100, which together are 86.
  EXPECT_NEAR(*Attaining({{1, 95}, {2, 75}, {4, 97}}, 0.9), std::pow(2, 5.0 / 9), 1e-9);
}

struct Cut {
  std::vector<double> tokens_s;
  double cut_s = 0;  // 0: it was not cut off
  std::string error{};
};

std::optional<bool> GoodUnder(const Slo& limits, const Cut& request, bool open_loop = false) {
  RequestRecord record;
  record.sent_ns = 1'000'000'000;  // due one second before it was sent
  record.output_len = 4;
  const auto at = [](double s) { return 1'000'000'000 + std::llround(s * 1e9); };
  for (const double s : request.tokens_s) record.token_ns.push_back(at(s));
  record.cut = request.cut_s > 0;
  record.ended_ns = record.cut ? at(request.cut_s) : at(9);
  record.error = record.cut ? "cut off" : request.error;
  return IsGood(record, open_loop, limits);
}

TEST(IsGood, OfAWholeRequestComparesItsTimes) {
  const Slo first{.ttft_s = 1.0, .tpot_s = {}, .e2el_s = {}};
  EXPECT_EQ(GoodUnder(first, {{1, 2}}), true);
  EXPECT_EQ(GoodUnder(first, {{1.1, 2}}), false);
  EXPECT_EQ(GoodUnder(first, {{0.1, 2}}, true), false) << "in an open loop since it was due";
  EXPECT_EQ(GoodUnder(first, {{0.5}, 0, "HTTP 500"}), false);
  EXPECT_EQ(GoodUnder(first, {{}, 0, "HTTP 500"}), false);
}

TEST(IsGood, OfACutRequestIsUnknownUntilALimitIsMissed) {
  const Slo first{.ttft_s = 1.0, .tpot_s = {}, .e2el_s = {}};
  EXPECT_EQ(GoodUnder(first, {{}, 0.9}), std::nullopt);
  EXPECT_EQ(GoodUnder(first, {{}, 1.1}), false);
  EXPECT_EQ(GoodUnder(first, {{0.5}, 0.9}), true) << "nothing else is limited";
  const Slo whole{.ttft_s = 1.0, .tpot_s = {}, .e2el_s = 5.0};
  EXPECT_EQ(GoodUnder(whole, {{0.5}, 4.9}), std::nullopt);
  EXPECT_EQ(GoodUnder(whole, {{0.5}, 5.1}), false);
  const Slo pace{.ttft_s = {}, .tpot_s = 0.5, .e2el_s = {}};  // 1.5 s for the other three tokens
  EXPECT_EQ(GoodUnder(pace, {{}, 9}), std::nullopt);
  EXPECT_EQ(GoodUnder(pace, {{2, 2.1}, 3.4}), std::nullopt);
  EXPECT_EQ(GoodUnder(pace, {{2, 2.1}, 3.6}), false);
}

TEST(RunOf, CountsRequestsThatWereNeverSent) {
  ServerLoadResult result;
  result.never_sent = 2;
  RequestRecord good;
  good.token_ns = {10, 20};
  result.requests = {good, good};
  result.requests[1].cut = true;
  result.requests[1].error = "cut off";
  const LevelRun run = RunOf(result, {.ttft_s = {}, .tpot_s = {}, .e2el_s = 1.0});
  EXPECT_EQ(run.good, 1u);
  EXPECT_EQ(run.total, 4u);
}

TEST(SloSearch, RefusesInvalidOptions) {
  const auto never = [](double) -> Result<LevelRun> { return LevelRun{1, 1}; };
  for (const SloSearchOptions& options :
       {SloSearchOptions{.low = 0}, SloSearchOptions{.low = 9, .high = 3},
        SloSearchOptions{.attain = 1.5}, SloSearchOptions{.repeats = 20}})
    EXPECT_EQ(FindSloBoundary(options, never).error().code, ErrorCode::kUsage);
  const auto broken = FindSloBoundary(
      {}, [](double) -> Result<LevelRun> { return Fail(ErrorCode::kFailed, "gone"); });
  EXPECT_EQ(broken.error().message, "gone");
}

}  // namespace
}  // namespace pinion::harness
