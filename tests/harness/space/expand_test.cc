#include "harness/space/expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/base/strings.h"
#include "engine/checkpoint/preset.h"
#include "engine/run/start.h"
#include "harness/space/bindings.h"
#include "harness/space/own_settings.h"
#include "kernels/isa.h"
#include "tests/engine/host/imagined.h"
#include "tests/test_data.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Host Imagine(const char* synthetic) {
  Host host;
  auto machine = ImagineMachine(synthetic);
  EXPECT_TRUE(machine) << synthetic;
  host.machine = *machine;
  auto budget = ComputeBudget(host.machine);
  EXPECT_TRUE(budget) << synthetic;
  host.budget = *budget;
  host.budget.memory_available_bytes = uint64_t{16} << 30;
  for (kernels::Isa isa : kernels::UsableIsas()) host.isas.emplace_back(kernels::Name(isa));
  return host;
}

EngineOptions Base() {
  EngineOptions options;
  options.model = "preset:tiny";
  return options;
}

// What the engine's capacity check asks for, with the smallest useful cache.
uint64_t LeastBytes(const EngineOptions& options) {
  const PlannedModel model = *PlanModel(options);
  const auto needs = NeedsFor(options, model);
  EXPECT_TRUE(needs);
  const size_t length = std::min<size_t>(*ResolveModelLength(model.spec, options), 2048);
  const auto block = static_cast<size_t>(options.block_size);
  uint64_t bytes = 0;
  for (const RankNeeds& rank : *needs)
    bytes += rank.weights + rank.workspace + rank.kv.StorageBytes((length + block - 1) / block);
  return bytes;
}

DecoderSpec Tiny() {
  auto config = PresetConfig("tiny");
  EXPECT_TRUE(config);
  auto spec = ReadSpec(*config);
  EXPECT_TRUE(spec);
  return *spec;
}

Definition Parse(const char* text) {
  Definition definition;
  const Status status = FromJson(*Json::Parse(text), definition);
  EXPECT_TRUE(status) << status.error().message;
  return definition;
}

std::vector<std::string> Labels(const std::vector<Point>& points) {
  std::vector<std::string> labels;
  for (const Point& point : points) labels.push_back(point.label);
  return labels;
}

std::vector<Json> ValuesOf(const Definition& definition, const char* key) {
  const Axis* axis = FindAxis(definition.axes, key);
  return axis ? axis->values : std::vector<Json>();
}

constexpr char kTwoSockets[] = "pack:2 numa:1 core:4 pu:2";

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
    EXPECT_EQ((*Expand(both, options, host, spec))[1].infeasible, "");
    --host.budget.memory_available_bytes;
    EXPECT_THAT((*Expand(both, options, host, spec))[1].infeasible, HasSubstr("of memory is free"));
  }
}

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
    EXPECT_THAT((*points)[1].infeasible, HasSubstr("has no setting for replicas=2, that is"));
    EXPECT_THAT((*points)[1].infeasible, HasSubstr("`pinion load`"));
  }
  const auto vllm = Expand(Parse(R"({"engines":["vllm"],"candidates":[{"replicas":2}]})"), Base(),
                           Imagine(kTwoSockets), Tiny());
  ASSERT_TRUE(vllm) << vllm.error().message;
  EXPECT_THAT((*vllm)[1].infeasible, IsEmpty());
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

TEST(Expand, BaselineThatCannotRunIsAnError) {
  EngineOptions base = Base();
  base.isa = "sse9";
  EXPECT_FALSE(Expand({}, base, Imagine(kTwoSockets), Tiny()));
}

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
