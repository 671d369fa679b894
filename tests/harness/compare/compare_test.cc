#include "harness/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "engine/base/strings.h"
#include "harness/store/store.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;
using Kind = MetricDifference::Kind;

class CompareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / StrCat("pinion_compare_", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Plant {
    double speed = 1;  // of the second configuration
    int rounds = 8;
    const char* cpu = "Zen";
    int seed = 1;
    const char* kernel = "6.1";
    double noise = 0.005;
    int batch_prompts = 0;
    bool has_batch = true;
  };

  // A store as a sweep leaves it: the default twice a round, and one more configuration.
  std::string Make(const std::string& name, const Plant& plant) {
    std::string path = folder_ / name;
    const auto store = Store::Create(path);
    const auto put = [&](const char* key, const std::string& json) {
      EXPECT_TRUE((*store)->SetMeta(key, *Json::Parse(json)));
    };
    put("machine", StrCat("{\"cpu_model\":\"", plant.cpu, "\",\"kernel\":\"", plant.kernel, "\"}"));
    put("budget", "{\"cpus\":[0,1]}");
    put("definition", StrCat("{\"workload\":{\"prompt_len\":9},\"seed\":", plant.seed, "}"));
    put("origin", StrCat("{\"model\":\"m\",\"commit\":\"", name, "\"}"));
    CandidateRow baseline, other;
    baseline.label = "default";
    baseline.configuration.options.model = "m";
    other.id = 1;
    other.label = "isa=avx2";
    other.configuration.options.model = "m";
    other.configuration.options.isa = "avx2";
    // The same options as the baseline's, but twice.
    CandidateRow twice = baseline;
    twice.id = 2;
    twice.settings = {{"replicas", "2"}};
    EXPECT_TRUE((*store)->PutCandidates({baseline, other, twice}));
    std::mt19937_64 random(name.size());
    std::normal_distribution<double> noise(0, plant.noise);
    for (int round = 1; round <= plant.rounds; ++round) {
      const double drift = std::exp(0.1 * std::sin(round));  // common to both runs
      for (const auto& [id, copy] : {std::pair(0, 0), std::pair(0, 1), std::pair(1, 0)}) {
        TrialRow trial;
        trial.candidate = id;
        trial.copy = copy;
        trial.round = round;
        trial.ok = true;
        const double speed = drift * (id == 1 ? plant.speed : 1) * std::exp(noise(random));
        trial.samples = {{"output_tokens_per_s", plant.has_batch ? 0 : 1, 100 * speed},
                         {"ttft_s", 1, 0.2 / speed}};
        trial.info.batch_prompts = plant.batch_prompts;
        EXPECT_TRUE((*store)->PutTrial(trial, {"x", "m", "", 1}));
      }
    }
    return path;
  }

  static Kind Of(const RunComparison& comparison, const std::string& candidate,
                 const std::string& metric) {
    for (const MetricDifference& difference : comparison.differences)
      if (difference.candidate == candidate && difference.metric == metric) return difference.kind;
    ADD_FAILURE() << candidate << " " << metric;
    return Kind::kSame;
  }

  std::string Refusal(const Plant& a, const Plant& b) {
    static int number = 0;
    ++number;
    const auto comparison =
        Compare(Make(StrCat("a", number), a), Make(StrCat("b", number), b), 0.02);
    EXPECT_FALSE(comparison);
    return comparison ? "" : comparison.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(CompareTest, FindsOnlyMetricsThatGotSlower) {
  const auto comparison = Compare(Make("a", {}), Make("b2", {.speed = 0.9}), 0.02);
  ASSERT_TRUE(comparison) << comparison.error().message;
  EXPECT_EQ(Of(*comparison, "default", "output_tokens_per_s"), Kind::kSame);
  EXPECT_EQ(Of(*comparison, "isa=avx2", "output_tokens_per_s"), Kind::kWorse);
  EXPECT_EQ(Of(*comparison, "isa=avx2", "ttft_s"), Kind::kWorse);  // less is better there
  EXPECT_TRUE(comparison->any_worse());
  EXPECT_THAT(Render(*comparison), HasSubstr("2 worse, 0 better of 4"));
  EXPECT_EQ(ToJson(*comparison).Find("worse")->integer(), 2);
}

TEST_F(CompareTest, FasterIsNotARegression) {
  const auto comparison = Compare(Make("a", {}), Make("b2", {.speed = 1.2}), 0.02);
  EXPECT_EQ(Of(*comparison, "isa=avx2", "ttft_s"), Kind::kBetter);
  EXPECT_FALSE(comparison->any_worse());
}

TEST_F(CompareTest, DifferencesBelowThresholdOrFloorAreTheSame) {
  const std::string a = Make("a", {}), b = Make("b2", {.speed = 0.9});
  EXPECT_FALSE(Compare(a, b, 0.15)->any_worse());
  const auto noisy =
      Compare(Make("a3", {.noise = 0.2}), Make("b44", {.speed = 0.9, .noise = 0.2}), 0.02);
  EXPECT_FALSE(noisy->any_worse());
}

// Two metrics of two configurations: four differences, each held to a quarter of the level.
TEST_F(CompareTest, TheLevelIsCorrectedForAllDifferences) {
  EXPECT_THAT(Refusal({}, {.rounds = 7}), HasSubstr("a verdict needs 8 to decide on 4 diff"));
  const auto equal = Compare(Make("a", {.rounds = 12}), Make("b2", {.rounds = 12}), 0.02);
  ASSERT_EQ(equal->differences.size(), 4u);
  for (const MetricDifference& one : equal->differences) {
    ASSERT_TRUE(one.ratio.interval);
    EXPECT_GE(one.ratio.interval->coverage, 1 - 0.032 / 4) << one.metric;
  }
}

TEST_F(CompareTest, ReplicasAreNotTheirSingleServer) {
  const std::string a = Make("a", {}), b = Make("b2", {});
  const auto store = Store::Open(b);
  TrialRow trial;
  trial.candidate = 2;
  trial.round = 1;
  trial.ok = true;
  trial.samples = {{"output_tokens_per_s", 0, 400}};
  EXPECT_TRUE((*store)->PutTrial(trial, {"x", "m", "", 1}));
  EXPECT_EQ(Compare(a, b, 0.02)->differences.size(), 4u);
}

TEST_F(CompareTest, RefusesIncomparableRunsWithTheReason) {
  EXPECT_THAT(Refusal({}, {.cpu = "Skylake"}), HasSubstr("cpu_model is \"Zen\" in one and"));
  EXPECT_THAT(Refusal({}, {.seed = 2}), HasSubstr("the seed is 1 in one and 2"));
  EXPECT_THAT(Refusal({}, {.batch_prompts = 4}),
              HasSubstr("prompts of the offline batch (0: not reduced) is 0 in one and 4"));
  EXPECT_THAT(Refusal({}, {.has_batch = false}), HasSubstr("ran an offline batch is true in one"));
  EXPECT_THAT(Refusal({}, {.rounds = 5}), HasSubstr("5 rounds in common"));
  EXPECT_THAT(Refusal({}, {.rounds = 1}), HasSubstr("1 round in common"));
  EXPECT_THAT(Refusal({}, {.rounds = 0}), HasSubstr("no configuration was measured"));
  const auto nowhere = Compare(folder_ / "nowhere", Make("z", {}), 0.02);
  EXPECT_THAT(nowhere.error().message, HasSubstr("there is no sweep"));
}

TEST_F(CompareTest, CompareAnywayShowsIncomparableRunsSideBySide) {
  const auto strangers =
      CompareAnyway(Make("a", {}), Make("b2", {.cpu = "Skylake", .seed = 2}), 0.02);
  ASSERT_TRUE(strangers) << strangers.error().message;
  EXPECT_THAT(strangers->obstacles,
              testing::ElementsAre(HasSubstr("cpu_model"), HasSubstr("seed")));
  EXPECT_TRUE(strangers->differences.empty());
  const auto shy = CompareAnyway(Make("a3", {}), Make("b44", {.rounds = 5}), 0.02);
  EXPECT_THAT(shy->obstacles, testing::ElementsAre(HasSubstr("5 rounds in common")));
  EXPECT_EQ(Of(*shy, "default", "ttft_s"), Kind::kTooFewRounds);
  EXPECT_TRUE(CompareAnyway(Make("a5", {}), Make("b66", {}), 0.02)->obstacles.empty());
}

TEST_F(CompareTest, DifferentKernelIsANote) {
  const auto comparison = Compare(Make("a", {}), Make("b2", {.kernel = "6.8"}), 0.02);
  ASSERT_EQ(comparison->notes.size(), 1u);
  EXPECT_THAT(comparison->notes[0], HasSubstr("6.8"));
}

}  // namespace
}  // namespace pinion::harness
