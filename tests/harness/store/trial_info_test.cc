#include "harness/store/trial_info.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

// Every member is set, and the rest has what no member is for.
constexpr char kWhole[] =
    R"({"stages":{"load":1.5},"isa":"avx2","dtype":"bfloat16","threads":2,"ranks":1,)"
    R"("plan":{"ranks":[{"rank":0,"cpus":[2,3],"nodes":[1],"threads":2}],"frontend_cpus":[4],)"
    R"("warnings":[],"reasons":["as asked"]},"command":"serve","cut":["offline batch cut"],)"
    R"("quantiles":[{"metric":"ttft_s","n":7,"values":[0.5,1.0],"concurrency":0,"rate":2.5}],)"
    R"("slo":{"unit":"clients","levels":[{"load":2.0,"good":3,"total":4}]},)"
    R"("no_ceilings_because":"no room","batch_prompts":4,"batch_over_s":1.5,"once_s":2.5,"out_of_time_s":30.0,)"
    R"("waves":[[{"metric":"ttft_s","value":0.5,"concurrency":4}],[]],)"
    R"("warm_up_s":1.25,"warm_up_batches":3,"windows":[)"
    R"({"start_s":0.5,"end_s":2.5,"requests":8,"by_time":true,"concurrency":4},)"
    R"({"start_s":null,"end_s":null,"requests":2,"concurrency":0,"rate":2.5}],)"
    R"("generator":{"cpus":[3],"late_share":0.125,"apart":true},"ignored_settings":["isa=avx2"]})";

TEST(TrialInfo, SurvivesTheRoundTripThroughJson) {
  const TrialInfo info = ReadTrialInfo(*Json::Parse(kWhole));
  EXPECT_EQ(info.isa, "avx2");
  ASSERT_EQ(info.plan.ranks.size(), 1u);
  EXPECT_EQ(info.plan.ranks[0].cpus, (std::vector<int>{2, 3}));
  EXPECT_EQ(info.cut, std::vector<std::string>{kBatchCut});
  ASSERT_EQ(info.quantiles.size(), 1u);
  EXPECT_EQ(info.quantiles[0].level, LoadLevel::AtRate(2.5));
  EXPECT_EQ(info.slo->levels.at(2).good, 3u);
  EXPECT_EQ(info.out_of_time_s, 30);
  ASSERT_EQ(info.waves.size(), 2u);
  EXPECT_EQ(info.waves[0][0].level, LoadLevel(4));
  EXPECT_EQ(info.batch_prompts, 4);
  EXPECT_EQ(info.batch_over_s, 1.5);
  EXPECT_TRUE(info.has_cut_batch());
  ASSERT_EQ(info.windows.size(), 2u);
  EXPECT_EQ(info.windows[0].end_s, 2.5);
  EXPECT_EQ(info.windows[0].by_time, true);
  EXPECT_FALSE(info.windows[1].start_s || info.windows[1].by_time);
  EXPECT_TRUE(info.generator->is_apart);
  EXPECT_EQ(info.rest.Dump(), R"({"stages":{"load":1.5}})");
  EXPECT_EQ(ToJson(info).Dump(), kWhole);
  EXPECT_EQ(ToJson(ReadTrialInfo(Json())).Dump(), "{}");
}

TEST(TrialInfo, LeavesMembersOfAnotherTypeUnset) {
  const TrialInfo info = ReadTrialInfo(*Json::Parse(
      R"({"isa":1,"threads":"two","cut":"all","quantiles":[{"metric":"ttft_s"}],"once_s":null,"windows":[7,{"concurrency":"all"}],"generator":[],)"
      R"("slo":{"levels":[{"load":"high"},{"load":1.0,"good":-1,"total":4},{"load":2.0}]}})"));
  EXPECT_TRUE(info.isa.empty() && info.cut.empty() && info.quantiles.empty() && !info.once_s);
  EXPECT_EQ(info.threads, 0);
  EXPECT_FALSE(info.has_cut_batch());
  EXPECT_TRUE(info.slo->levels.empty());
  EXPECT_TRUE(info.windows.empty() && !info.generator);
  const Json older = *Json::Parse(R"({"generator":{"cpus":[0],"late_share":0.0}})");
  EXPECT_FALSE(ReadTrialInfo(older).generator) << "it is not known whose CPUs these were";
}

}  // namespace
}  // namespace pinion::harness
