#include "harness/space/expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "imagined_host.h"
#include "tests/test_data.h"
#include "tests/watched.h"

namespace pinion::harness {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Expand, GridComesAfterTheBaselineWithTheLastSettingFastest) {
  const auto points =
      Expand(Parse(R"({"axes":{"dtype":["float32","float16"],"max_num_seqs":[4,8]}})"), Base(),
             Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points),
              ElementsAre("default", "dtype=float32 max_num_seqs=4", "dtype=float32 max_num_seqs=8",
                          "dtype=float16 max_num_seqs=4", "dtype=float16 max_num_seqs=8"));
}

TEST(Expand, APairIsTwoConfigurations) {
  Definition definition =
      Parse(R"({"strategy":"pair","objectives":["throughput"],"axes":{"max_num_seqs":[4,8]}})");
  const auto three = Expand(definition, Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_FALSE(three);
  EXPECT_THAT(three.error().message, HasSubstr("this space has 3"));
  SetAxis("max_num_seqs", {4}, definition.axes);
  const auto two = Expand(definition, Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_THAT(Labels(*two), ElementsAre("default", "max_num_seqs=4"));
}

// Settings stand in the order of the registry and flags in that of the file, whatever depends on
// what.
TEST(Expand, AConditionHoldsWhereverItsSettingStands) {
  const auto points = Expand(Parse(R"({"axes":{"tensor_parallel":[1,2],"max_num_seqs":[4]},
                "when":{"tensor_parallel":{"max_num_seqs":4}},"candidates":[{"max_num_seqs":8}]})"),
                             Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points), ElementsAre("default", "max_num_seqs=4",
                                           "tensor_parallel=2 max_num_seqs=4", "max_num_seqs=8"));
  const auto flags = Expand(Parse(R"({"engines":["vllm"],"axes":{"-a":[1,2],"-b":["x",null]},
                       "when":{"-a":{"-b":"x"}}})"),
                            Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(flags) << flags.error().message;
  EXPECT_THAT(Labels(*flags), ElementsAre("default", "-b=x -a=1", "-b=x -a=2"));
}

TEST(Expand, AConditionThatNeverHoldsIsNamed) {
  const auto error = [](const char* text) {
    const auto points = Expand(Parse(text), Base(), Imagine(kTwoSockets), Tiny());
    return points ? std::string() : points.error().message;
  };
  EXPECT_EQ(error(R"({"axes":{"isa":["scalar"]},"when":{"isa":{"tensor_parallel":[7,8]}}})"),
            "'isa' varies only if tensor_parallel is 7 or 8, as 'when' says, and no configuration "
            "has that: give the values to 'axes', or take 'isa' out");
  EXPECT_EQ(error(R"({"axes":{"isa":["scalar"]},"when":{"isa":{"isa":"auto"}}})"),
            "'isa' in 'when' depends on itself: it varies if isa is auto; take that condition out");
  EXPECT_THAT(error(R"({"axes":{"isa":["scalar"],"dtype":["float32"]},
                        "when":{"isa":{"dtype":"float32"},"dtype":{"isa":"scalar"}}})"),
              HasSubstr("depends on itself"));
}

TEST(Expand, PointsWithTheSameEffectivePlanAreMerged) {
  // auto takes the first CPU of each core, and the best ISA path, which the list names outright.
  const Host host = Imagine("pack:1 numa:1 core:4 pu:2");
  Definition definition;
  SetAxis("threads_bind", {"auto", "0,2,4,6"}, definition.axes);
  SetAxis("isa", {"auto", host.isas.back()}, definition.axes);
  const auto points = Expand(definition, Base(), host, Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points), ElementsAre("default"));
  const std::string isa = "isa=" + host.isas.back();
  EXPECT_THAT((*points)[0].same_as,
              ElementsAre(isa, "threads_bind=0,2,4,6", "threads_bind=0,2,4,6 " + isa));
}

TEST(Expand, InfeasiblePointsKeepTheirReason) {
  const auto points = Expand(
      Parse(R"({"candidates":[{"isa":"sse9"},{"threads_bind":"0-99"},{"kv_cache_space":100}]})"),
      Base(), Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  ASSERT_EQ(points->size(), 4u);
  EXPECT_THAT((*points)[0].infeasible, IsEmpty());
  EXPECT_THAT((*points)[1].infeasible, HasSubstr("'sse9' is unknown"));
  EXPECT_THAT((*points)[2].infeasible, HasSubstr("16"));  // the first CPU that does not exist
  EXPECT_THAT((*points)[3].infeasible, HasSubstr("16.0 GiB of memory is free"));
}

// This process's CPU, which may be older or newer, has no say about another machine.
TEST(Expand, IsaPathsOfAnotherMachineAreItsOwn) {
  Host host = Imagine(kTwoSockets);
  host.isas = {"scalar", "amx"};
  const auto points = Expand(Parse(R"({"axes":{"isa":["scalar","avx2"]}})"), Base(), host, Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_EQ((*points)[1].infeasible, "");
  EXPECT_EQ((*points)[2].infeasible, "the machine has no ISA path 'avx2', but scalar, amx");
  const auto tiles =
      Expand(Parse(R"({"axes":{"isa":["amx"],"max_num_seqs":[4]}})"), Base(), host, Tiny());
  EXPECT_EQ((*tiles)[1].infeasible, "");
}

TEST(Expand, ReplicasDivideTheMachineAndCountTheirMemory) {
  Host host = Imagine(kTwoSockets);
  const auto points = Expand(Parse(R"({"axes":{"replicas":[1,2,9]}})"), Base(), host, Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points), ElementsAre("default", "replicas=2", "replicas=9"));
  EXPECT_EQ((*points)[1].configuration.replicas, 2);
  EXPECT_EQ((*points)[1].plan.ranks.size(), 2u);
  EXPECT_EQ((*points)[1].plan.total_threads(), 8);  // no more cores than one engine has
  EXPECT_THAT((*points)[2].infeasible, HasSubstr("9 ranks in all"));

  host.budget.memory_available_bytes = LeastBytes(Base()) * 3 / 2;
  const auto tight = Expand(Parse(R"({"candidates":[{"replicas":2}]})"), Base(), host, Tiny());
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_THAT((*tight)[1].infeasible, HasSubstr("2 replicas: 'preset:tiny' needs weights "));
}

TEST(Expand, OnReplicasOfOneNodeOursAloneShareTheirWeights) {
  Host host = Imagine("pack:1 numa:1 core:8 pu:1");
  host.budget.memory_available_bytes = 2 * LeastBytes(Base()) - 1;
  const auto two = [&](const char* engine, const char* more) {
    const auto points = Expand(
        Parse(StrCat(R"({"engines":[")", engine, R"("],"candidates":[{"replicas":2)", more, "}]}")
                  .c_str()),
        Base(), host, Tiny());
    EXPECT_TRUE(points) << points.error().message;
    return points ? points->back().infeasible : "";
  };
  EXPECT_EQ(two("pinion", ""), "");
  EXPECT_THAT(two("pinion", R"(,"share_weights":"off")"), HasSubstr("2 replicas: "));
  EXPECT_THAT(two("vllm", ""), HasSubstr("2 replicas: "));
}

// Exactly the memory that the engine's start would want is enough, in whatever form each
// configuration holds the weights: float32 dequantises some of them.
TEST(Expand, QuantisedModelsAreRefusedOnlyIfTheyDoNotFit) {
  const std::string folder = tests::TestData() + "/quantised/";
  for (const char* name : {"llama-w8a8", "llama-w4a16", "qwen2-awq", "llama-gptq-actorder",
                           "llama-q4_k.gguf", "llama-q8_0.gguf"}) {
    SCOPED_TRACE(name);
    EngineOptions options;
    options.model = folder + name;
    const DecoderSpec spec = FindModel(options.model)->spec;
    Host host = Imagine(kTwoSockets);
    host.budget.memory_available_bytes = LeastBytes(options);
    const auto fits = Expand({}, options, host, spec);
    EXPECT_TRUE(fits) << fits.error().message;
    --host.budget.memory_available_bytes;
    EXPECT_FALSE(Expand({}, options, host, spec));

    EngineOptions wide = options;
    wide.dtype = "float32";
    host.budget.memory_available_bytes = LeastBytes(wide);
    const Definition both = Parse(R"({"axes":{"dtype":["float32"]}})");
    const auto enough = Expand(both, options, host, spec);
    ASSERT_TRUE(enough) << "float32 needs no more than the default: " << enough.error().message;
    EXPECT_EQ((*enough)[1].infeasible, "");
    --host.budget.memory_available_bytes;
    const auto tight = Expand(both, options, host, spec);
    ASSERT_TRUE(tight) << tight.error().message;
    EXPECT_THAT((*tight)[1].infeasible, HasSubstr("of memory is free"));
  }
}

TEST(Expand, RefusesUnknownSettingsAndHugeGrids) {
  const Host host = Imagine(kTwoSockets);
  const auto unknown = Expand(Parse(R"({"candidates":[{"replicants":2}]})"), Base(), host, Tiny());
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("unknown setting 'replicants'; known are"));
  Definition huge;
  std::vector<Json> numbers;
  for (int i = 1; i <= 40; ++i) numbers.emplace_back(i);
  SetAxis("max_num_seqs", numbers, huge.axes);
  SetAxis("max_num_batched_tokens", numbers, huge.axes);
  const auto refused = Expand(huge, Base(), host, Tiny());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("more than 1000 combinations"));
}

// 40^4 combinations: a search by proposals gets as many as it can have, drawn by the seed.
TEST(Expand, ASearchByProposalsDrawsFromASpaceTooLargeToList) {
  const Host host = Imagine(kTwoSockets);
  Definition huge;
  huge.strategy = Strategy::kTpe;
  std::vector<Json> numbers, blocks;
  for (int i = 1; i <= 40; ++i) numbers.emplace_back(i);
  for (int i = 1; i <= 40; ++i) blocks.emplace_back(16 * i);
  for (const char* key : {"max_num_seqs", "max_num_batched_tokens", "max_step_ms"})
    SetAxis(key, numbers, huge.axes);
  SetAxis("block_size", blocks, huge.axes);
  const auto points = Expand(huge, Base(), host, Tiny());
  ASSERT_TRUE(points) << points.error().message;
  const std::vector<std::string> labels = Labels(*points);
  EXPECT_EQ(labels.size(), 1 + MostPoints(Strategy::kTpe));
  EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), labels.size());
  for (int i = 1; i <= 40; ++i)
    EXPECT_THAT(labels, Contains(HasSubstr("batched_tokens=" + std::to_string(i) + " "))) << i;
  EXPECT_EQ(Labels(*Expand(huge, Base(), host, Tiny())), labels) << "the same for the same seed";
  huge.seed = 2;
  EXPECT_NE(Labels(*Expand(huge, Base(), host, Tiny())), labels);
}

// 160^2 combinations, of which one lets the third axis vary: whether it is among the 5,000 drawn is
// the seed's choice, and no fault of the definition.
TEST(Expand, ConditionsOfADrawnSpaceAreRefusedOnlyIfNothingMeetsThem) {
  Definition huge;
  huge.strategy = Strategy::kTpe;
  std::vector<Json> numbers;
  for (int i = 1; i <= 160; ++i) numbers.emplace_back(i);
  SetAxis("max_num_seqs", numbers, huge.axes);
  SetAxis("max_num_batched_tokens", numbers, huge.axes);
  SetAxis("block_size", {32, 64}, huge.axes);
  const auto is_taken = [&](const char* wanted) {
    for (Axis& axis : huge.axes)
      if (axis.key == "block_size")
        axis.when = {{"max_num_seqs", {"7"}}, {"max_num_batched_tokens", {wanted}}};
    return Expand(huge, Base(), Imagine(kTwoSockets), Tiny()).has_value();
  };
  const uint64_t seeds = tests::Watched() ? 1 : 3;
  for (huge.seed = 1; huge.seed <= seeds; ++huge.seed) {
    EXPECT_TRUE(is_taken("9")) << huge.seed;
    EXPECT_FALSE(is_taken("161")) << huge.seed;
  }
}

TEST(Expand, BaselineThatCannotRunIsAnError) {
  EngineOptions base = Base();
  base.isa = "sse9";
  EXPECT_FALSE(Expand({}, base, Imagine(kTwoSockets), Tiny()));
}

TEST(Expand, SmtUsesTheOtherHardwareThreadsIfThereAreAny) {
  const Definition both = Parse(R"({"axes":{"smt":["off","on"]}})");
  const auto points = Expand(both, Base(), Imagine("pack:1 numa:1 core:4 pu:2"), Tiny());
  ASSERT_TRUE(points) << points.error().message;
  ASSERT_THAT(Labels(*points), ElementsAre("default", "smt=on"));
  EXPECT_EQ((*points)[0].plan.total_threads(), 4);
  EXPECT_EQ((*points)[1].plan.total_threads(), 8);
  const auto none = Expand(both, Base(), Imagine("pack:1 numa:1 core:4 pu:1"), Tiny());
  EXPECT_THAT((*none)[1].infeasible, HasSubstr("--smt on needs cores with several"));
  const auto elsewhere = Expand(Parse(R"({"candidates":[{"smt":"on","threads_bind":"nobind"}]})"),
                                Base(), Imagine(kTwoSockets), Tiny());
  EXPECT_THAT((*elsewhere)[1].infeasible, HasSubstr("works only under auto"));
}

TEST(Expand, RuntimesAreSettingsLikeOthersAndMissingOnesKeepTheirReason) {
  Host host = Imagine("pack:1 numa:1 core:2 pu:1");
  host.runtime.huge_pages = "always [madvise] never";
  const auto points = Expand(Parse(R"({"candidates":[{"huge_pages":"off"},{"allocator":"tcmalloc"},
    {"huge_pages":"on"}]})"),
                             Base(), host, Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT(Labels(*points), ElementsAre("default", "huge_pages=off", "allocator=tcmalloc"));
  EXPECT_EQ((*points)[1].infeasible, "");
  EXPECT_EQ((*points)[1].configuration.runtime.huge_pages, "off");
  EXPECT_THAT((*points)[2].infeasible, HasSubstr("install libtcmalloc-minimal4"));
}

TEST(Expand, MoreCoresThanAllowedAreDisqualifiedWithTheNumber) {
  const Host host = Imagine("pack:1 numa:1 core:4 pu:1");
  Definition definition = Parse(R"({"candidates":[{"threads_bind":"0-2"},{"threads_bind":"0"}],
    "constraints":{"cores":2}})");
  EngineOptions base = Base();
  EXPECT_THAT(Expand(definition, base, host, Tiny()).error().message,
              HasSubstr("it uses 4 cores, and the constraint allows 2"));
  base.threads_bind = "0-1";
  const auto points = Expand(definition, base, host, Tiny());
  ASSERT_TRUE(points) << points.error().message;
  EXPECT_THAT((*points)[1].infeasible, HasSubstr("disqualified: it uses 3 cores"));
  EXPECT_EQ((*points)[2].infeasible, "");
}

}  // namespace
}  // namespace pinion::harness
