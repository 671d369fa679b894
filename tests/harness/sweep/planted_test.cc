// Effects planted in replays: how they are read, and what failures, disturbances and pairs come to.

#include "harness/sweep/planted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "harness/sweep/replay.h"
#include "tests/test_data.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Planted, TheDefaultIsTheOneSoCalledElseTheFirstOfSpeedOneElseUnlisted) {
  const auto first = [](const char* text) {
    const auto planted = ParsePlanted(*Json::Parse(text));
    EXPECT_TRUE(planted);
    return planted->configurations[0].first + (planted->default_is_listed ? "" : " unlisted");
  };
  EXPECT_EQ(first(R"({"configurations":{"a":1.0,"default":0.9}})"), "default");
  EXPECT_EQ(first(R"({"configurations":{"fast":1.05,"b":1.0,"c":1.0}})"), "b");
  EXPECT_EQ(first(R"({"configurations":{"fast":1.05}})"), "default unlisted");
}

TEST(Planted, NothingIsIgnored) {
  const auto error = [](const std::string& more) {
    return ParsePlanted(*Json::Parse(R"({"configurations":{"a":1,"b":1})" + more + "}"))
        .error()
        .message;
  };
  EXPECT_THAT(error(R"(,"nois":{"b":2})"),
              HasSubstr("unknown key 'nois' in planted effects; known are configurations, noise"));
  EXPECT_THAT(error(R"(,"noise":{"b":2,"b":3})"), HasSubstr("'b' stands twice in \"noise\""));
  EXPECT_THAT(
      error(R"(,"failures":"half")"),
      HasSubstr("\"failures\" must be a share of trials from 0 to below 0.5, not \"half\""));
  EXPECT_THAT(
      ParsePlanted(*Json::Parse(R"({"configurations":{"a":1,"b":1,"b":2}})")).error().message,
      HasSubstr("'b' stands twice in \"configurations\""));
}

TEST(Planted, OnARecordedSweepSpeedsAreThoseOfItsCandidates) {
  const auto read = [](const char* text) {
    return ParsePlantedOn({"default", "isa=avx2", "smt=on"}, *Json::Parse(text));
  };
  const auto planted = read(R"({"configurations":{"smt=on":0.9},"failures":0.1})");
  ASSERT_TRUE(planted) << planted.error().message;
  EXPECT_THAT(planted->configurations,
              ElementsAre(Pair("default", 1), Pair("isa=avx2", 1), Pair("smt=on", 0.9)));
  EXPECT_EQ(planted->failures, 0.1);
  EXPECT_EQ(read("{}")->configurations.size(), 3u);
  EXPECT_EQ(read(R"({"configurations":{"smt=off":1}})").error().message,
            "the recorded sweep has no candidate 'smt=off'; it has default, isa=avx2, smt=on");
  EXPECT_THAT(read(R"({"configurations":{"smt=on":0}})").error().message,
              HasSubstr("must be a number above 0, not 0"));
  EXPECT_THAT(read("[]").error().message, HasSubstr("planted effects must be an object"));
}

TEST(Planted, BadEffectsAreNamed) {
  const auto error = [](const std::string& text) {
    return ParsePlanted(*Json::Parse(text)).error().message;
  };
  EXPECT_THAT(error(R"([1])"), HasSubstr("\"configurations\""));
  EXPECT_THAT(error(R"({"configurations":{"a":-1}})"), HasSubstr("'a' must be a number above 0"));
  EXPECT_THAT(error(R"({"configurations":{"none":1}})"), HasSubstr("'none'"));
  EXPECT_THAT(error(R"({"configurations":{"a":1}})"), HasSubstr("besides the default"));
  EXPECT_THAT(error(R"({"configurations":{"a":1,"b":1},"noise":{"b":0.5}})"),
              HasSubstr("the noise of 'b' must be a number of at least 1, not 0.5"));
  EXPECT_THAT(error(R"({"configurations":{"a":1,"b":1},"noise":{"c":2}})"),
              HasSubstr("'c' is not among the configurations"));
  EXPECT_THAT(error(R"({"configurations":{"a":1,"b":1},"noise":2})"), HasSubstr("{\"B\":2}"));
  EXPECT_THAT(error(R"({"configurations":{"a":1,"b":1},"objectives":4})"),
              HasSubstr("\"objectives\" must be 1, 2 or 3, not 4"));
  for (const char* key : {"failures", "disturbed"})
    for (const char* share : {"0.5", "-0.1"})
      EXPECT_THAT(error(StrCat(R"({"configurations":{"a":1,"b":1},")", key, R"(":)", share, "}")),
                  HasSubstr(StrCat("\"", key, "\" must be a share of trials")));
}

Recording QuietSeries() {
  auto recording = ReadRecording(tests::TestData() + "/noise/quiet.csv", "memory_bytes_per_s");
  EXPECT_TRUE(recording) << recording.error().message;
  return *recording;
}

Planted EightWith(double failures, double disturbed) {
  Planted planted;
  for (int i = 0; i < 8; ++i)
    planted.configurations.emplace_back(i ? StrCat("c", i) : "default", i == 3 ? 1.05 : 1);
  planted.failures = failures;
  planted.disturbed = disturbed;
  return planted;
}

ReplayReport ReportOf(const Planted& planted, const ReplayOptions& options) {
  const auto report = ReplayPlanted(QuietSeries(), planted, options);
  EXPECT_TRUE(report) << report.error().message;
  return *report;
}

double MeanOf(const ReplayReport& report, const char* name) {
  const ReplayFigure* figure = report.by_blocks ? report.by_blocks->Find(name) : nullptr;
  return figure ? figure->mean.mean : -1;
}

TEST(Planted, FailuresAndDisturbedTrialsCostTimeAndAreNotDifferences) {
  ReplayOptions options;
  options.seeds = 40;
  const ReplayReport calm = ReportOf(EightWith(0, 0), options);
  const ReplayReport troubled = ReportOf(EightWith(0.03, 0.1), options);
  EXPECT_GT(MeanOf(troubled, "cost"), 1.05 * MeanOf(calm, "cost"));
  EXPECT_EQ(MeanOf(troubled, "worse_crowned"), 0);
  EXPECT_GE(MeanOf(troubled, "found"), 0.8);
  EXPECT_EQ(MeanOf(troubled, "budget_kept"), 1);
  // Two of five trials fail: every configuration is soon out, some defaults before they ever ran.
  const ReplayReport broken = ReportOf(EightWith(0.4, 0), options);
  EXPECT_LT(MeanOf(broken, "found"), 0.2);
  EXPECT_EQ(MeanOf(broken, "false_crowns"), 0);
  EXPECT_GT(MeanOf(broken, "undecided"), 0.5);
}

// Ten minutes of `pinion compare` are 48 trials of 12.5 s; here one takes a second.
ReplayReport PairOf(double speed_of_b, double budget_s, double failures, double disturbed) {
  Planted planted;
  planted.configurations = {{"default", 1}, {"B", speed_of_b}};
  planted.failures = failures;
  planted.disturbed = disturbed;
  ReplayOptions options;
  options.seeds = 20;
  options.definition.strategy = Strategy::kPair;
  options.definition.rounds = kMaxRounds;
  options.definition.budget_s = budget_s;
  return ReportOf(planted, options);
}

TEST(Planted, AComparisonTellsFivePercentFromEqualBuildsInTwentyOfTwentyReplays) {
  const ReplayReport worse = PairOf(0.95, 48, 0, 0), equal = PairOf(1, 48, 0, 0);
  EXPECT_EQ(MeanOf(worse, "default_best"), 1);
  EXPECT_EQ(MeanOf(equal, "default_best") + MeanOf(equal, "false_crowns"), 0);
  EXPECT_GE(MeanOf(equal, "coverage"), 0.9);
}

TEST(Planted, WithFailuresAndDisturbedTrialsAComparisonNeedsTwiceTheTime) {
  const ReplayReport worse = PairOf(0.95, 96, 0.03, 0.1), equal = PairOf(1, 96, 0.03, 0.1);
  EXPECT_EQ(MeanOf(worse, "default_best"), 1);
  EXPECT_EQ(MeanOf(equal, "default_best") + MeanOf(equal, "false_crowns"), 0);
}

TEST(Planted, APairIsTwoConfigurationsInOneObjective) {
  ReplayOptions options;
  options.definition.strategy = Strategy::kPair;
  const auto report = ReplayPlanted(QuietSeries(), EightWith(0, 0), options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("compares two configurations"));
}

}  // namespace
}  // namespace pinion::harness
