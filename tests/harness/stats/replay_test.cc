// Replays: sweeps without an engine, on noise that was recorded or made up. Trial k of a replay
// takes row (offset + k) mod N of the series, times the planted speed of its configuration.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "harness/stats/verdict.h"

namespace pinion::harness {
namespace {

// Drifting noise: an autoregressive part (lag-1 correlation 0.6) and rare slow spells.
std::vector<double> MadeUpNoise(double spread) {
  std::mt19937 random(99);
  std::normal_distribution<double> normal(0, spread * 0.8);
  std::vector<double> log_speed(3000);
  double state = 0;
  for (double& value : log_speed) {
    state = 0.6 * state + normal(random);
    value = state - (random() % 40 == 0 ? 5 * spread : 0);
  }
  return log_speed;
}

// The folder beside the one that PINION_FIXTURES names; empty where there is none.
std::vector<double> RecordedNoise(const std::string& file) {
  const char* fixtures = std::getenv("PINION_FIXTURES");
  const std::filesystem::path folder =
      fixtures ? std::filesystem::path(fixtures) : std::filesystem::path("../shared/fixtures");
  std::ifstream in(folder.parent_path() / "noise" / file);
  std::vector<double> log_speed;
  std::string line;
  std::getline(in, line);  // header
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::string time, speed;
    std::getline(cells, time, ',');
    std::getline(cells, speed, ',');
    log_speed.push_back(std::log(std::stod(speed)));
  }
  return log_speed;
}

// One sweep of `speeds.size()` contestants against an anchor of speed 1, which runs twice a round.
Verdict Replay(const std::vector<double>& noise, const std::vector<double>& speeds, int rounds,
               uint32_t seed) {
  std::mt19937 random(seed);
  size_t row = random() % noise.size();
  VerdictInput input;
  input.objective = "throughput";
  input.anchor_rounds = static_cast<size_t>(rounds);
  input.contestants.resize(speeds.size());
  for (size_t c = 0; c < speeds.size(); ++c) {
    input.contestants[c].candidate = static_cast<int>(c) + 1;
    input.contestants[c].settings_off_default = 1;
  }
  for (int round = 1; round <= rounds; ++round) {
    std::vector<size_t> order(speeds.size() + 2);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<double> seen(order.size());
    for (size_t trial : order) {
      seen[trial] = noise[row++ % noise.size()];
      if (trial >= 2) seen[trial] += std::log(speeds[trial - 2]);
    }
    input.anchor_log_ratios.push_back(seen[1] - seen[0]);
    for (size_t c = 0; c < speeds.size(); ++c)
      input.contestants[c].log_ratios[round] = seen[c + 2] - seen[0];
  }
  return Decide(input);
}

struct Tally {
  double crowned = 0, right = 0, above_floor = 0;  // fractions of the replays
};

constexpr int kReplays = 300;

Tally Tallied(const std::vector<double>& noise, const std::vector<double>& speeds, int rounds) {
  const int best =
      static_cast<int>(std::max_element(speeds.begin(), speeds.end()) - speeds.begin()) + 1;
  Tally tally;
  for (uint32_t seed = 0; seed < kReplays; ++seed) {
    const Verdict verdict = Replay(noise, speeds, rounds, seed);
    if (verdict.recommended == 0) continue;
    tally.crowned += 1.0 / kReplays;
    tally.right += verdict.recommended == best ? 1.0 / kReplays : 0;
    tally.above_floor += verdict.ratio.median > 1 + verdict.floor ? 1.0 / kReplays : 0;
  }
  return tally;
}

// 5 % allowed, and 1.64 standard errors of 300 replays as luck.
constexpr double kFalseCrowns = 0.05 + 1.64 * 0.0126;
// 90 % demanded, less 1.64 standard errors.
constexpr double kFound = 0.90 - 1.64 * 0.0173;

void ExpectHonest(const std::vector<double>& noise, bool quiet, const std::vector<int>& rounds) {
  const std::vector<double> equal(7, 1.0);
  std::vector<double> planted = equal, worse(7, 0.9);
  planted[3] = 1.05;
  for (int count : rounds) {
    EXPECT_LE(Tallied(noise, equal, count).crowned, kFalseCrowns) << count << " rounds";
    const Tally tally = Tallied(noise, planted, count);
    EXPECT_NEAR(tally.above_floor, tally.crowned, 1e-9) << count << " rounds";
    if (quiet && count >= 12) {
      EXPECT_GE(tally.right, kFound) << count << " rounds";
    }
  }
  EXPECT_LE(Tallied(noise, worse, rounds[0]).crowned, 0.005);
}

TEST(Replay, MadeUpNoiseCrownsSeldomAndFindsFivePercent) {
  ExpectHonest(MadeUpNoise(0.02), true, {6, 12, 20});
}

TEST(Replay, WildNoiseCrownsSeldom) { ExpectHonest(MadeUpNoise(0.3), false, {6}); }

TEST(Replay, RecordedNoiseCrownsSeldomAndFindsFivePercent) {
  const std::vector<double> quiet = RecordedNoise("quiet.csv");
  const std::vector<double> disturbed = RecordedNoise("disturbed.csv");
  if (quiet.empty() || disturbed.empty())
    GTEST_SKIP() << "no recorded noise beside the folder that PINION_FIXTURES names";
  ExpectHonest(quiet, true, {6, 12});
  ExpectHonest(disturbed, false, {6, 20});
}

}  // namespace
}  // namespace pinion::harness
