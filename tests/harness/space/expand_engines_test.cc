// Other engines and their own settings in a space.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "harness/space/expand.h"
#include "harness/space/own_settings.h"
#include "imagined_host.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Another engine may read a model that Pinion does not, and then its memory is its own business.
TEST(Expand, AnotherEnginesUnknownModelIsNotRefused) {
  EngineOptions options;
  options.model = "/no/such/model";
  Definition definition;
  EXPECT_FALSE(Expand(definition, options, Imagine(kTwoSockets), Tiny()));
  definition.engines[0].kind = EngineChoice::Kind::kVllm;
  EXPECT_TRUE(Expand(definition, options, Imagine(kTwoSockets), Tiny()));
  options.model = "preset:tiny";
  options.kv_cache_bytes = uint64_t{1} << 40;
  EXPECT_FALSE(Expand(definition, options, Imagine(kTwoSockets), Tiny()));
}

TEST(Expand, ReplicasOfAnEngineWithoutSuchAFlagAreRefusedWithTheWayOut) {
  for (const char* engine : {R"({"command":["./server","{port}"]})", R"("llama.cpp")"}) {
    const Definition definition =
        Parse(StrCat(R"({"engines":[)", engine, R"(],"candidates":[{"replicas":2}]})").c_str());
    const auto points = Expand(definition, Base(), Imagine(kTwoSockets), Tiny());
    ASSERT_TRUE(points) << points.error().message;
    EXPECT_THAT((*points)[1].infeasible,
                HasSubstr("has no setting for replicas=2; it has no flag"));
    EXPECT_THAT((*points)[1].infeasible, HasSubstr("`pinion load`"));
  }
  const auto vllm = Expand(Parse(R"({"engines":["vllm"],"candidates":[{"replicas":2}]})"), Base(),
                           Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(vllm) << vllm.error().message;
  EXPECT_THAT((*vllm)[1].infeasible, IsEmpty());
}

TEST(Expand, SettingsThatAnotherEngineLacksAreInfeasibleWithTheReason) {
  Definition definition = Parse(R"({"engines":["llama.cpp"],"candidates":[{"isa":"avx2"},
    {"kv_cache_dtype":"int8"},{"tensor_parallel":2},{"huge_pages":"off"},{"max_num_seqs":4}]})");
  const auto points = Expand(definition, Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_EQ((*points)[1].infeasible, "llama.cpp has no setting for isa=avx2");
  EXPECT_EQ((*points)[2].infeasible, "llama.cpp has no setting for kv_cache_dtype=int8");
  EXPECT_EQ((*points)[3].infeasible, "llama.cpp has no setting for tensor_parallel=2");
  EXPECT_EQ((*points)[4].infeasible, "llama.cpp has no setting for huge_pages=off");
  EXPECT_EQ((*points)[5].infeasible, "");
}

TEST(Expand, ACommandHasTheSettingsWhosePlaceholdersAreInItsWords) {
  const Definition definition = Parse(R"({
    "engines":[{"command":["./server","{port}","--simd={isa}"],"environment":{"N":"{replicas}"}}],
    "candidates":[{"isa":"scalar"},{"replicas":2},{"memory_policy":"interleave"}]})");
  const auto points = Expand(definition, Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_EQ((*points)[1].infeasible, "");
  EXPECT_EQ((*points)[2].infeasible, "");
  EXPECT_EQ((*points)[3].infeasible, "command has no setting for memory_policy=interleave");
}

TEST(Expand, AValueThatAnotherEngineLacksIsInfeasibleToo) {
  const auto points =
      Expand(Parse(R"({"engines":["vllm"],"axes":{"kv_cache_dtype":["int8","fp8_e5m2"]}})"), Base(),
             Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_EQ((*points)[1].infeasible, "vllm has no setting for kv_cache_dtype=int8");
  EXPECT_EQ((*points)[2].infeasible, "");
}

constexpr const char* kThreeEngines = R"({
  "engines": ["pinion", {"name": "v", "engine": "vllm"}, {"name": "old", "binary": "/opt/pinion"}],
  "axes": {"isa": ["auto", "scalar"], "max_num_batched_tokens": [512],
           "env.OMP_WAIT_POLICY": ["active", null], "--enforce-eager": [true, false]},
  "when": {"env.OMP_WAIT_POLICY": {"engine": ["v", "old"], "isa": "auto"}},
  "candidates": [{"engine": "v", "-q": 4}]})";

TEST(Expand, EveryEngineRacesWithTheAxesThatItHas) {
  const auto points = Expand(Parse(kThreeEngines), Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(
      Labels(*points),
      ElementsAre("pinion: default", "pinion: max_num_batched_tokens=512",
                  "pinion: isa=scalar max_num_batched_tokens=512", "v: default",
                  "v: max_num_batched_tokens=512 env.OMP_WAIT_POLICY=active --enforce-eager",
                  "v: max_num_batched_tokens=512 env.OMP_WAIT_POLICY=active",
                  "v: max_num_batched_tokens=512 --enforce-eager", "v: max_num_batched_tokens=512",
                  "v: -q=4", "old: default",
                  "old: max_num_batched_tokens=512 env.OMP_WAIT_POLICY=active",
                  "old: max_num_batched_tokens=512", "old: isa=scalar max_num_batched_tokens=512"));
  for (const Point& point : *points)
    EXPECT_EQ(point.engine, point.label.substr(0, point.label.find(':')));
}

TEST(Expand, AnEngineAloneHasNoNameInLabelsAndKeepsItsOwnSettings) {
  const auto points =
      Expand(Parse(R"({"engines":["vllm"],"axes":{"-fa":["on",true],"env.X":[1,null]}})"), Base(),
             Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points),
              ElementsAre("default", "-fa=on env.X=1", "-fa=on", "-fa env.X=1", "-fa"));
}

TEST(Expand, AnEnginesSettingsAreInAllOfItsConfigurations) {
  const Definition definition =
      Parse(R"({"engines":[{"name":"A"},{"name":"B","settings":{"isa":"scalar","env.X":"1"}}],
                "axes":{"max_num_seqs":[7]}})");
  const auto points = Expand(definition, Base(), Imagine("numa:1 core:2 pu:1"), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points),
              ElementsAre("A: default", "A: max_num_seqs=7", "B: isa=scalar env.X=1",
                          "B: isa=scalar max_num_seqs=7 env.X=1"));
  EXPECT_EQ(points->back().configuration.options.isa, "scalar");
  EXPECT_EQ(points->front().configuration.options.isa, "auto");
  Definition again;
  ASSERT_TRUE(FromJson(ToJson(definition), again));
  EXPECT_EQ(ToJson(again), ToJson(definition));
  EXPECT_THAT(
      FromJson(*Json::Parse(R"({"engines":[{"settings":{"speed":9}}]})"), again).error().message,
      HasSubstr("unknown setting 'speed'"));
}

TEST(Expand, OwnSettingsReachTheEngine) {
  EngineChoice engine;
  engine.arguments = {"--first"};
  const EngineChoice with =
      WithOwnSettings(engine, {{"isa", "avx2"}, {"-fa", "on"}, {"--eager", ""}, {"env.X", "1"}});
  EXPECT_THAT(with.arguments, ElementsAre("--first", "-fa", "on", "--eager"));
  EXPECT_THAT(with.environment, ElementsAre(testing::Pair("X", "1")));
}

}  // namespace
}  // namespace pinion::harness
