// The spaces that a sweep without a definition varies, and the lists of CPUs in them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/base/strings.h"
#include "harness/space/bindings.h"
#include "harness/space/expand.h"
#include "imagined_host.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Presets, QuickHasAtMostSixFeasibleCandidatesOnEveryMachine) {
  for (const char* machine : {"pack:1 numa:1 core:1 pu:1", "pack:1 numa:1 core:2 pu:1", kTwoSockets,
                              "pack:2 numa:4 core:8 pu:2"}) {
    const Host host = Imagine(machine);
    const Definition quick = QuickDefinition(host, {}, {});
    EXPECT_EQ(quick.rounds, 6);
    EXPECT_LE(quick.trial_limit_s, 12.0);
    const auto points = Expand(quick, Base(), host, Tiny());
    ASSERT_TRUE(points) << machine << ": " << points.error().message;
    EXPECT_GE(points->size(), 3u) << machine;
    EXPECT_LE(points->size(), 6u) << machine;
    for (const Point& point : *points)
      EXPECT_THAT(point.infeasible, IsEmpty()) << machine << " " << point.label;
  }
}

TEST(Presets, DefaultTriesTheKindsOfSettingThatThisMachineHas) {
  Host small = Imagine("pack:1 numa:1 core:2 pu:1");
  small.isas = {"scalar", "avx2", "avx512"};
  const Definition few = DefaultDefinition(small, Base(), {});
  EXPECT_THAT(ValuesOf(few, "tensor_parallel"), IsEmpty());
  EXPECT_THAT(ValuesOf(few, "threads_bind"), ElementsAre("auto", "all", "nobind"));
  EXPECT_THAT(
      few.candidates,
      ElementsAre(*Json::Parse(R"({"reserved_cpus":0})"), *Json::Parse(R"({"reserved_cpus":1})"),
                  *Json::Parse(R"({"reserved_cpus":2})"), *Json::Parse(R"({"threads_bind":"0"})"),
                  *Json::Parse(R"({"isa":"avx2"})"),
                  *Json::Parse(R"({"max_num_batched_tokens":256})"),
                  *Json::Parse(R"({"kv_cache_dtype":"int8"})"),
                  *Json::Parse(R"({"kv_cache_dtype":"fp8_e5m2"})")));
  const Definition many = DefaultDefinition(Imagine(kTwoSockets), Base(), {});
  EXPECT_THAT(ValuesOf(many, "tensor_parallel"), ElementsAre(1, 2));
  for (const char* one : {R"({"smt":"on"})", R"({"replicas":2})", R"({"threads_bind":"0-12:4"})"})
    EXPECT_THAT(many.candidates, testing::Contains(*Json::Parse(one)));
}

// Two sockets of three nodes: every axis has several values, and most of them can run.
TEST(Presets, DefaultVariesEverythingOnALargeMachine) {
  const Host host = Imagine("pack:2 numa:3 core:19 pu:2");
  SpaceContext context;
  context.dtype = "bfloat16";
  context.kv_bytes_of_context = uint64_t{40} << 20;
  context.kv_bytes_of_load = 16 * context.kv_bytes_of_context;
  const Definition all = DefaultDefinition(host, Base(), context);
  EXPECT_THAT(ValuesOf(all, "threads_bind"), ElementsAre("auto", "all", "nobind"));
  EXPECT_THAT(ValuesOf(all, "tensor_parallel"), ElementsAre(1, 2, 6));
  std::map<std::string, std::set<std::string>> values;
  for (const Json& candidate : all.candidates)
    for (const auto& [key, value] : candidate.object()) values[key].insert(SettingText(value));
  EXPECT_THAT(values["replicas"], ElementsAre("2", "6"));
  EXPECT_THAT(values["reserved_cpus"], ElementsAre("0", "1", "2"));
  EXPECT_THAT(values["kv_cache_space"], ElementsAre("0.15625", "0.3125", "0.625"));
  EXPECT_THAT(values["dtype"], ElementsAre("float16"));
  EXPECT_THAT(values["kv_cache_dtype"], ElementsAre("fp8_e5m2", "int8"));
  EXPECT_EQ(values["max_num_batched_tokens"].size(), 1u);
  EXPECT_EQ(values["threads_bind"].size(), 5u);
}

// A step must hold two contexts at least, or its KV space says nothing about batches.
TEST(Presets, KvSpacesBindButHoldTwoContexts) {
  SpaceContext context;
  context.kv_bytes_of_context = uint64_t{1} << 30;
  context.kv_bytes_of_load = 4 * context.kv_bytes_of_context;
  std::vector<Json> spaces;
  for (const Json& candidate : DefaultDefinition(Imagine(kTwoSockets), Base(), context).candidates)
    if (const Json* gib = candidate.Find("kv_cache_space")) spaces.push_back(*gib);
  EXPECT_THAT(spaces, ElementsAre(4.0, 2.0));
}

TEST(Bindings, AreMadeFromTheTopology) {
  const auto lists = [](const char* machine) {
    std::vector<std::string> lists;
    for (const ExplicitBinding& one : ExplicitBindings(Imagine(machine)))
      lists.push_back(StrCat(one.ranks, ": ", one.list));
    return lists;
  };
  EXPECT_THAT(lists("pack:1 numa:1 core:1 pu:2"), IsEmpty());
  EXPECT_THAT(lists("pack:1 numa:1 core:4 pu:2"), ElementsAre("1: 0,4"));
  // Half, the first socket, the first node, a rank on each node without and with siblings.
  EXPECT_THAT(lists("pack:2 numa:2 core:2 pu:2"),
              ElementsAre("1: 0-12:4", "1: 0-6:2", "1: 0,2", "4: 0,2|4,6|8,10|12,14",
                          "4: 0-3|4-7|8-11|12-15"));
  // L3 domains below the nodes.
  EXPECT_THAT(lists("pack:1 numa:1 l3:2(size=32MB) core:2 pu:1"),
              ElementsAre("1: 0,2", "1: 0-1", "2: 0-1|2-3"));
  // Only what may be used counts.
  Host host = Imagine("pack:2 numa:1 core:2 pu:1");
  host.budget.cpus = {1, 2, 3};
  EXPECT_EQ(ExplicitBindings(host)[1].list, "1");
  EXPECT_EQ(ExplicitBindings(host)[2].list, "1|2-3");
}

// Performance and efficiency cores: auto takes the former alone, so that all of them, and the
// others alone, are lists to try.
TEST(Bindings, HaveEveryKindOfCoreAndAllKinds) {
  Host host = Imagine("pack:1 numa:1 core:6 pu:1");
  host.machine = LargeAndSmallCores(4, 4);
  host.budget.cpus = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<std::string> lists;
  for (const ExplicitBinding& one : ExplicitBindings(host)) lists.push_back(one.list);
  EXPECT_THAT(lists, ElementsAre("0,4", "8-11", "0-8:2,9-11"));
  host.machine.kinds = {{"up to 3300 MHz", false}, {"up to 5100 MHz", false}};
  lists.clear();
  for (const ExplicitBinding& one : ExplicitBindings(host)) lists.push_back(one.list);
  EXPECT_THAT(lists, ElementsAre("0-8:4,10", "0-6:2", "8-11")) << "auto takes all";
  const Definition definition = DefaultDefinition(host, Base(), {});
  for (const char* list : {"0-6:2", "8-11"})
    EXPECT_THAT(definition.candidates,
                testing::Contains(Json(Json::Object{{"threads_bind", list}})));
}

TEST(Presets, VnniPathsAreTriedOnlyWithIntegerMatrices) {
  Host host = Imagine("pack:1 numa:1 core:2 pu:1");
  host.isas = {"scalar", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16"};
  EXPECT_THAT(DefaultDefinition(host, Base(), {{}, true}).candidates,
              testing::Contains(*Json::Parse(R"({"isa":"avx512_vnni"})")));
  EXPECT_THAT(DefaultDefinition(host, Base(), {{}, false}).candidates,
              testing::Contains(*Json::Parse(R"({"isa":"avx512"})")));
  for (const Json& candidate : QuickDefinition(host, Base(), {{}, false}).candidates) {
    const Json* isa = candidate.Find("isa");
    EXPECT_THAT(isa ? isa->string() : "avx2", testing::AnyOf("avx512", "avx2"));
  }
}

TEST(Presets, OtherEnginesAreOfferedOnlyTheirOwnSettings) {
  Host host = Imagine(kTwoSockets);
  host.machine.this_system = true;  // so that libraries are offered too
  EngineChoice llama;
  llama.kind = EngineChoice::Kind::kLlamaCpp;
  for (const Definition& built_in : {DefaultDefinition(host, Base(), {llama, true}),
                                     QuickDefinition(host, Base(), {llama, true})}) {
    EXPECT_THAT(ValuesOf(built_in, "isa"), IsEmpty());
    EXPECT_THAT(ValuesOf(built_in, "tensor_parallel"), IsEmpty());
    for (const Json& candidate : built_in.candidates)
      for (const auto& [key, value] : candidate.object())
        EXPECT_TRUE(HasSetting(llama, key)) << key;
  }
  EXPECT_THAT(DefaultDefinition(host, Base(), {llama, true}).candidates, testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace pinion::harness
