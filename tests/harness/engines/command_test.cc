#include "harness/engines/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/strings.h"
#include "engine/run/replicas.h"

namespace pinion::harness {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using Kind = EngineChoice::Kind;

// Two ranks on the two nodes of an imagined machine, or on one of them.
struct Case {
  EngineOptions options;
  Plan plan;
  Machine machine;
};

Case TwoNodes(const std::string& bind, int ranks) {
  Case made;
  made.machine = *ImagineMachine("pack:2 numa:1 core:4 pu:1");
  made.options.model = "/models/x";
  made.options.threads_bind = bind;
  made.options.tensor_parallel = ranks;
  made.options.max_num_seqs = 4;
  BindingRequest request;
  request.threads_bind = bind;
  request.ranks = ranks;
  made.plan = *MakePlan(made.machine, *ComputeBudget(made.machine), request);
  return made;
}

EngineChoice Choice(Kind kind, std::vector<std::string> command = {}) {
  EngineChoice engine;
  engine.kind = kind;
  engine.command = std::move(command);
  return engine;
}

Result<EngineCommand> For(const EngineChoice& engine, const Case& made) {
  return CommandFor(engine, {made.options}, made.plan, made.machine, 8123);
}

std::string TextOf(const EngineCommand& made) { return ShellText(made.command); }

TEST(EngineCommand, VllmGetsListsSpaceAndPort) {
  Case made = TwoNodes("auto", 2);
  made.options.kv_cache_bytes = uint64_t{3} << 30;
  const auto command = For(Choice(Kind::kVllm), made);
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_THAT(command->command.environment, Contains(Pair("VLLM_CPU_OMP_THREADS_BIND", "0-3|4-7")));
  EXPECT_THAT(command->command.environment, Contains(Pair("VLLM_CPU_KVCACHE_SPACE", "3")));
  EXPECT_THAT(TextOf(*command), HasSubstr("vllm serve /models/x -tp 2"));
  EXPECT_THAT(TextOf(*command), HasSubstr("--host 127.0.0.1 --port 8123"));
  EXPECT_FALSE(command->cpus);  // it binds itself
}

TEST(EngineCommand, OursEndsWithItsEngineProcess) {
  const auto command = For({}, TwoNodes("auto", 1));
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_THAT(TextOf(*command), HasSubstr("serve /models/x"));
  EXPECT_THAT(TextOf(*command), HasSubstr("--port 8123 --max-engine-restarts 0"));
}

// Two engines of one server on two nodes of four cores.
EngineCommand OfTwoReplicas(const EngineChoice& engine, const std::string& bind, int ranks) {
  const Machine machine = *ImagineMachine("pack:2 numa:1 core:4 pu:1");
  Configuration configuration;
  configuration.options.model = "/models/x";
  configuration.options.threads_bind = bind;
  configuration.options.tensor_parallel = ranks;
  configuration.replicas = 2;
  const auto plan = PlanReplicas(configuration.options, 2, machine, *ComputeBudget(machine));
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  const auto made = CommandFor(engine, configuration, *plan, machine, 8123);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return *made;
}

TEST(EngineCommand, ReplicasAreTheEnginesOfOneServer) {
  const EngineCommand ours = OfTwoReplicas({}, "auto", 1);
  EXPECT_THAT(TextOf(ours), HasSubstr("serve /models/x --data-parallel-size 2 --host 127.0.0.1"));
  EXPECT_FALSE(ours.cpus);  // it divides them itself
  const EngineCommand vllm = OfTwoReplicas(Choice(Kind::kVllm), "auto", 2);
  EXPECT_THAT(vllm.command.environment,
              Contains(Pair("VLLM_CPU_OMP_THREADS_BIND", "0-1|2-3|4-5|6-7")));
  EXPECT_THAT(TextOf(vllm), HasSubstr("-tp 2 --data-parallel-size 2"));
}

TEST(EngineCommand, WithoutBindingEachReplicaOfVllmHasItsShareOfThreads) {
  EXPECT_THAT(OfTwoReplicas(Choice(Kind::kVllm), "nobind", 1).command.environment,
              Contains(Pair("OMP_NUM_THREADS", "4")));
  EXPECT_THAT(For(Choice(Kind::kVllm), TwoNodes("nobind", 1))->command.environment,
              Not(Contains(Pair("OMP_NUM_THREADS", "8"))));
}

// A variable of ours would replace a default, which the command line does not name.
TEST(EngineCommand, OursGetsItsSettingsFromTheConfigurationAlone) {
  setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1", 1);
  const auto bare = For({}, TwoNodes("auto", 1));
  EngineChoice engine;
  engine.environment = {{"VLLM_CPU_OMP_THREADS_BIND", "2-3"}};
  const auto own = For(engine, TwoNodes("auto", 1));
  unsetenv("VLLM_CPU_OMP_THREADS_BIND");
  EXPECT_THAT(bare->command.environment, ElementsAre(Pair("VLLM_CPU_OMP_THREADS_BIND", "")));
  EXPECT_THAT(own->command.environment, ElementsAre(Pair("VLLM_CPU_OMP_THREADS_BIND", "2-3")));
}

TEST(EngineCommand, AnotherProgramForTheSameEngine) {
  EngineChoice engine =
      Choice(Kind::kVllm, {"python3", "-m", "vllm.entrypoints.openai.api_server", "--model"});
  engine.arguments = {"--enforce-eager"};
  engine.environment = {{"LD_PRELOAD", "x.so"}};
  const auto command = For(engine, TwoNodes("auto", 1));
  EXPECT_THAT(TextOf(*command), HasSubstr("api_server --model /models/x"));
  EXPECT_EQ(command->command.arguments.back(), "--enforce-eager");
  EXPECT_THAT(command->command.environment, Contains(Pair("LD_PRELOAD", "x.so")));
}

TEST(EngineCommand, LlamaCppGetsThreadsAndMask) {
  Case made = TwoNodes("4-6", 1);
  made.options.model = "/models/x.gguf";
  made.options.max_model_len = 1000;
  made.options.isa = "avx2";
  const auto command = For(Choice(Kind::kLlamaCpp), made);
  ASSERT_TRUE(command) << command.error().message;
  EXPECT_THAT(TextOf(*command), HasSubstr("-t 3 -tb 3 -b 2048 -ub 2048 -np 4"));
  EXPECT_THAT(TextOf(*command), HasSubstr("-C 0x70 -Cb 0x70 --cpu-strict 1"));
  EXPECT_THAT(TextOf(*command), HasSubstr("-c 4000"));
  EXPECT_EQ(TextOf(*command).rfind("numactl --membind=1 llama-server", 0), 0u);
  EXPECT_THAT(*command->cpus, ElementsAre(4, 5, 6));
  EXPECT_THAT(command->ignored, ElementsAre("isa=avx2"));
}

TEST(EngineCommand, LlamaCppGetsJustEnoughContextForTheLoad) {
  Case made = TwoNodes("auto", 1);
  made.options.model = "/models/x.gguf";
  made.options.max_num_seqs = 128;
  const auto text = [&](const ServedLoad& load) {
    return TextOf(
        *CommandFor(Choice(Kind::kLlamaCpp), {made.options}, made.plan, made.machine, 8123, load));
  };
  EXPECT_THAT(text({8, 300}), HasSubstr("-np 8 -c 2400"));
  EXPECT_THAT(text({}), HasSubstr("-np 128 "));
  EXPECT_THAT(text({}), Not(HasSubstr("-c ")));
  made.options.max_model_len = 1000;
  EXPECT_THAT(text({200, 300}), HasSubstr("-np 128 -c 128000"));
}

TEST(EngineCommand, AnyCommandGetsItsPlaceholders) {
  const EngineChoice engine =
      Choice(Kind::kCommand, {"./server", "--listen=127.0.0.1:{port}", "{model}", "-j{threads}",
                              "--cpus", "{cpus}", "{{literal}}"});
  const auto command = For(engine, TwoNodes("all", 1));
  EXPECT_THAT(command->command.arguments,
              ElementsAre("./server", "--listen=127.0.0.1:8123", "/models/x", "-j8", "--cpus",
                          "0-7", "{literal}"));
}

TEST(EngineCommand, EverySettingIsAPlaceholder) {
  Case made = TwoNodes("auto", 1);
  made.options.isa = "avx2";
  made.options.block_size = 32;
  for (const SettingRow& row : SettingRows()) {
    const auto command = For(Choice(Kind::kCommand, {"./server", StrCat("{", row.key, "}")}), made);
    ASSERT_TRUE(command) << command.error().message;
    const Json value = row.get({made.options});
    EXPECT_EQ(command->command.arguments.back(), value.is_null() ? "0" : SettingText(value));
  }
}

TEST(EngineCommand, RefusesModelsThatTheEngineCannotRead) {
  Case made = TwoNodes("auto", 1);
  EXPECT_THAT(For(Choice(Kind::kLlamaCpp), made).error().message, HasSubstr("GGUF"));
  EXPECT_THAT(For(Choice(Kind::kCommand, {"x", "{prot}"}), made).error().message,
              HasSubstr("no placeholder '{prot}'; there are {model} {port}"));
  made.options.model = "preset:tiny";
  EXPECT_THAT(For(Choice(Kind::kVllm), made).error().message, HasSubstr("pinion model make"));
}

TEST(EngineChoice, ReadsItsTwoForms) {
  EXPECT_EQ(ReadEngineChoice(Json("vllm"))->kind, Kind::kVllm);
  const Json json = *Json::Parse(
      R"({"engine":"command","command":["a","{port}"],"environment":{"X":"1"},"health":"/up",
          "endpoint":"chat","start_timeout":"2m"})");
  const EngineChoice engine = *ReadEngineChoice(json);
  EXPECT_EQ(engine.start_timeout_s, 120);
  EXPECT_EQ(*ReadEngineChoice(ToJson(engine))->command.rbegin(), "{port}");
  EXPECT_EQ(ToJson(*ReadEngineChoice(ToJson(engine))), ToJson(engine));
}

TEST(EngineChoice, ErrorsNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("gpu")", "pinion, vllm, llama.cpp, command"},
      {R"({"engine":"command"})", "needs its 'command'"},
      {R"({"command":"x"})", "'command' must be a list of at least one value"},
      {R"({"command":["x"],"port":1})", "unknown key 'port' in one of 'engines'"},
      {R"({"command":["x"],"endpoint":"embed"})", "completions or chat"},
      {R"({"command":["x"],"health":"up"})", "must be a path"},
      {R"(7)", "a name or an object"},
      {R"({"engine":"vllm","binary":"x"})", "'binary' names another build of Pinion"},
      {R"({"engine":"pinion","command":["x"]})", "another build's file as 'binary'"},
      {R"({"command":["x"],"environment":{"X":1}})", "'environment' must be an object of strings"},
      {R"({"command":["x"],"name":"a b"})", "the engine's name 'a b'"},
  };
  for (const auto& [text, says] : cases) {
    const auto engine = ReadEngineChoice(*Json::Parse(text));
    ASSERT_FALSE(engine) << text;
    EXPECT_EQ(engine.error().code, ErrorCode::kUsage);
    EXPECT_THAT(engine.error().message, HasSubstr(says));
  }
}

}  // namespace
}  // namespace pinion::harness
